/* On a page that is opened from a disk, a worker is a hidden frame: browsers refuse a real one. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame.contentWindow;
      this.frame.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      this.frame.importScripts = async (...urls) => {
        for (const each of urls) await this.load(each);
      };
      this.loaded = this.load(url);
    }
    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.document.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        this.frame.document.body.append(script);
      });
    }
    async postMessage(data) {
      await this.loaded;
      this.frame.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
