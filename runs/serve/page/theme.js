// Light or dark, before anything is drawn: as the system says, or as chosen here before.
const THEME_KEY = "dualfed-theme";
function applyTheme(choice) {
  if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
  else delete document.documentElement.dataset.theme;
}
try {
  applyTheme(localStorage.getItem(THEME_KEY));
} catch {
  applyTheme("auto"); // storage may be forbidden
}
