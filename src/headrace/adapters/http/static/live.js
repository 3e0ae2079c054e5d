// What the server says once a second. Where that ends it is requested again: a browser does so itself only where the connection
// broke, not where the server refused, and it does not notice a connection that has become silent.

const AGAIN_MS = 2_000;
const SILENT_MS = 20_000;

// `show` gets each answer; `connected` whether what is shown is kept fresh.
export function listen(show, connected) {
  const events = new EventSource("/api/events");
  let silent = null;
  const again = (ms) => {
    clearTimeout(silent);
    events.close();
    connected(false);
    setTimeout(listen, ms, show, connected);
  };
  const awake = () => {
    clearTimeout(silent);
    silent = setTimeout(again, SILENT_MS, 0);
  };
  awake();
  events.addEventListener("message", (event) => {
    awake();
    connected(true);
    show(JSON.parse(event.data));
  });
  events.addEventListener("error", () => (events.readyState === EventSource.CLOSED ? again(AGAIN_MS) : connected(false)));
}
