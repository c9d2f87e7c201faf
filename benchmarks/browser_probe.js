// Loaded before the page's own scripts: times what they do per animation frame, from outside, and can hide the tab.
// Headless Chromium has no way to put a tab behind another, so hiding is played: document.hidden, its event, and no
// animation frames until it is shown again, as a browser does it.
(() => {
  let spent = 0; // ms of script since the last frame: messages, timers and the render loop
  let waiting = /** @type {FrameRequestCallback[] | null} */ (null);
  const probe = {
    frames: /** @type {number[]} */ ([]), // when each animation frame began
    script: /** @type {number[]} */ ([]), // ms of script of each, nought where nothing was done
    long: /** @type {number[]} */ ([]), // ms of each long task

    begin() {
      for (const list of [this.frames, this.script, this.long]) list.length = 0;
    },
    hide() {
      waiting = [];
      visibility(true);
    },
    /** Show the tab; resolves to the ms until the page is past a step. */
    show(step) {
      const from = performance.now();
      const held = waiting;
      waiting = null;
      visibility(false);
      for (const does of held) window.requestAnimationFrame(does);
      return new Promise((done) => {
        const look = () => (window.stepscope.moment().step >= step ? done(performance.now() - from) : later(look, 4));
        look();
      });
    },
  };
  window.probe = probe;

  const frame = window.requestAnimationFrame.bind(window);
  const later = window.setTimeout.bind(window);
  const { addEventListener } = WebSocket.prototype;

  function timed(does) {
    return function (...args) {
      const from = performance.now();
      try {
        return does.apply(this, args);
      } finally {
        spent += performance.now() - from;
        }
    };
  }

  window.requestAnimationFrame = (does) => (waiting ? waiting.push(does) : frame(timed(does)));
  window.setTimeout = (does, ...rest) => later(timed(does), ...rest);
  WebSocket.prototype.addEventListener = function (kind, does, ...rest) {
    return addEventListener.call(this, kind, kind === "message" ? timed(does) : does, ...rest);
  };

  function visibility(hidden) {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }

  function count(now) {
    frame(count);
    probe.frames.push(now);
    probe.script.push(spent);
    spent = 0;
  }
  frame(count);
  new PerformanceObserver((list) => probe.long.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });
})();
