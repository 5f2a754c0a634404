// Runs before the first paint, so that a chosen theme does not flash.
const stored = localStorage.getItem("theme");
if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
