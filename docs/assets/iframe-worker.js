/* Browsers start no worker from a page that was opened as a file. This stands in for one there, so
 * that search works without a server: the script runs in a hidden frame, and messages are handed
 * from one side to the other. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      this.inside = this.frame.contentWindow
      this.inside.postMessage = data => this.deliver(this, data)
      this.ready = new Promise(started => {
        const script = this.inside.document.createElement("script")
        script.src = new URL(url, location.href).href
        script.onload = started
        this.inside.document.documentElement.append(script)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.deliver(this.inside, data))
    }

    deliver(target, data) {
      target.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
