import { render } from "preact";
import { App } from "./app";
import { installWorker } from "./install";
import { saveNow } from "./state/conversations";
import { commitNow } from "./state/undo";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/chat.css";
import "./styles/markdown.css";
import "./styles/panels.css";

window.addEventListener("pagehide", () => {
  saveNow();
  commitNow();
});
render(<App />, document.getElementById("page")!);
installWorker();
