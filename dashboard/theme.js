// Runs before the first paint, so that nobody who chose dark sees a flash of light.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('tributary-theme');
  } catch {
    // Storage may be switched off: then the system decides.
  }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
