(() => {
  "use strict";
  // This runs before the first paint, so that a dark page does not flash white.
  let chosen = null;
  try { chosen = localStorage.getItem("torchzoo-theme"); } catch { /* without storage, the system's choice holds */ }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => { document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light"); };
  apply();
  dark.addEventListener("change", apply);
  window.toggleTheme = () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("torchzoo-theme", chosen); } catch { /* without storage, the choice is not kept */ }
    apply();
    return chosen;
  };
})();
