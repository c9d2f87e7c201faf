/**
 * A picture as 32-bit words: thousands of cells a frame cost next to nothing this way, where a fillRect each
 * would not. Coordinates are device pixels.
 */

/** @typedef {ReturnType<typeof createPixels>} Pixels */

/** A picture of the canvas' size, kept from frame to frame. */
export function createPixels() {
  let image = new ImageData(1, 1);
  let words = new Uint32Array(image.data.buffer);
  return {
    /** @param {CanvasRenderingContext2D} g @param {number} background packed colour */
    begin(g, background) {
      const { width, height } = g.canvas;
      if (image.width !== width || image.height !== height) {
        image = new ImageData(width, height);
        words = new Uint32Array(image.data.buffer);
      }
      words.fill(background);
    },
    /** @param {number} x @param {number} y @param {number} width @param {number} height @param {number} colour */
    rect(x, y, width, height, colour) {
      const stride = image.width;
      for (let row = y; row < y + height; row += 1) words.fill(colour, row * stride + x, row * stride + x + width);
    },
    /** @param {number} x @param {number} y @param {number} width @param {number} height @param {number} colour @param {number} line thickness */
    outline(x, y, width, height, colour, line) {
      this.rect(x, y, width, line, colour);
      this.rect(x, y + height - line, width, line, colour);
      this.rect(x, y + line, line, height - 2 * line, colour);
      this.rect(x + width - line, y + line, line, height - 2 * line, colour);
    },
    /**
     * Diagonal stripes, `on` pixels wide every `period`.
     * @param {number} x @param {number} y @param {number} width @param {number} height @param {number} colour @param {number} period @param {number} on
     */
    hatch(x, y, width, height, colour, period, on) {
      const stride = image.width;
      for (let row = y; row < y + height; row += 1) {
        for (let at = x; at < x + width; at += 1) if ((at + row) % period < on) words[row * stride + at] = colour;
      }
    },
    /**
     * Square dots of `size` pixels, as far apart, every other row shifted.
     * @param {number} x @param {number} y @param {number} width @param {number} height @param {number} colour @param {number} size
     */
    dots(x, y, width, height, colour, size) {
      const stride = image.width;
      for (let row = 0; row < height; row += 1) {
        const line = Math.floor(row / size);
        if (line % 2) continue;
        const shift = line % 4 ? size : 0;
        for (let at = 0; at < width; at += 1) if ((at + shift) % (2 * size) < size) words[(y + row) * stride + x + at] = colour;
      }
    },
    /**
     * Square holes of `size` pixels, two sizes apart, every other row shifted. They are counted from below, so that they
     * stay where they are while a fill grows.
     * @param {number} x @param {number} y @param {number} width @param {number} height @param {number} colour @param {number} size
     */
    holes(x, y, width, height, colour, size) {
      const stride = image.width;
      for (let up = 0; up < height; up += 1) {
        const line = Math.floor(up / size);
        if (line % 3 !== 1) continue;
        const shift = line % 2 ? 0 : Math.round(1.5 * size);
        for (let at = 0; at < width; at += 1) if ((at + 2 * size + shift) % (3 * size) < size) words[(y + height - 1 - up) * stride + x + at] = colour;
      }
    },
    /**
     * A right triangle in a corner.
     * @param {number} x @param {number} y @param {number} size @param {"tl" | "tr"} side @param {number} reach @param {number} colour
     */
    corner(x, y, size, side, reach, colour) {
      for (let row = 0; row < reach; row += 1) {
        const length = reach - row;
        this.rect(side === "tl" ? x : x + size - length, y + row, length, 1, colour);
      }
    },
    /** @param {CanvasRenderingContext2D} g */
    end(g) {
      g.putImageData(image, 0, 0);
    },
  };
}

/** Mix two packed colours; `share` of the first. @param {number} a @param {number} b @param {number} share */
export function mix(a, b, share) {
  const part = (/** @type {number} */ shift) => {
    const x = (a >>> shift) & 255;
    const y = (b >>> shift) & 255;
    return Math.round(x * share + y * (1 - share)) << shift;
  };
  return ((255 << 24) | part(16) | part(8) | part(0)) >>> 0;
}
