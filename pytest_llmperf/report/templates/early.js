document.documentElement.classList.add("js");
try {
  const chosen = localStorage.getItem("llmperf-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* a browser may keep nothing for files */ }
