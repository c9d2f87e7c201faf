/**
 * The newest answer, or one that was chosen, is kept in sight inside its scrolling box while it is written: down to its
 * end, but never past its beginning. Only the box scrolls, never the page, and it is left alone once somebody scrolls it.
 */

/** @param {HTMLElement} box */
export function mountReveal(box) {
  let card = /** @type {HTMLElement | null} */ (null);
  const leave = () => (card = null);
  for (const name of ["wheel", "pointerdown", "touchmove", "keydown"]) box.addEventListener(name, leave, { passive: true });

  function update() {
    if (!card) return;
    const [outer, inner] = [box.getBoundingClientRect(), card.getBoundingClientRect()];
    const hidden = inner.bottom - outer.bottom;
    const above = inner.top - outer.top - box.clientTop;
    if (above < 0) box.scrollTop += above;
    else if (hidden > 0) box.scrollTop += Math.min(hidden, above);
    if (!card.isConnected || card.dataset.status === "finished") leave();
  }

  return {
    /** @param {HTMLElement} next */
    follow(next) {
      card = next;
      update();
    },
    update,
  };
}
