// What the page asks the application: one stream of pictures that is opened again when it ends, and single questions.
"use strict";

const SILENT_MS = 4000; // without a picture for so long, what is shown is old
const RETRY_MS = [500, 1000, 2000, 4000];

// Ask once. Throws what the application says is wrong, with its status; where it lacks the token, the page asks for it.
async function ask(path, document) {
  const options = document ? {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(document)} : {};
  const answer = await fetch(path, options);
  const found = await answer.json();
  if (answer.status === 401) byId("token-form").hidden = false;
  if (!answer.ok) throw Object.assign(new Error(found.error || answer.statusText), {status: answer.status});
  return found;
}

// Calls `picture` with each picture, `lost` with why there is none, `refused` when the token is not right.
class Follower {
  constructor(picture, lost, refused) {
    Object.assign(this, {picture, lost, refused, source: null, tries: 0, timer: 0, last: Date.now(), filter: ""});
    document.addEventListener("visibilitychange", () => (document.hidden ? this.end() : this.begin()));
    setInterval(() => this.watch(), 1000);
  }

  begin(filter = this.filter) {
    this.end();
    this.filter = filter;
    this.source = new EventSource(`/api/stream?keys=100&filter=${encodeURIComponent(filter)}`);
    this.source.onmessage = (message) => {
      this.tries = 0;
      this.last = Date.now();
      this.picture(JSON.parse(message.data));
    };
    this.source.onerror = () => this.again();
  }

  end() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = null;
  }

  // An EventSource does not say why it ended, so a question of its own does.
  async again() {
    this.end();
    const wait = RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)];
    try {
      await ask("/api/report?keys=1");
    } catch (error) {
      if (error.status === 401) {
        this.refused(error.message);
        return;
      }
      this.lost(error.status ? error.message : "The application does not answer: it was ended, or the network is away.");
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.begin(), wait);
  }

  watch() {
    if (!document.hidden && this.source && Date.now() - this.last > SILENT_MS) {
      this.lost("No news from the application for some seconds: it is busy, or the network is slow.");
    }
  }
}
