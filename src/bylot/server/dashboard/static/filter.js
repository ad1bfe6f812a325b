// The list of routers: those whose name contains something, or that need attention.

const form = document.getElementById("filter");
const WORRIES = ["outside", "out of reach", "cannot be served"];
let routers = [];

export function filter(data) {
  if (!form) return;
  routers = data.routers;
  form.hidden = false;
  apply();
}

function apply() {
  const part = document.getElementById("contains").value.trim().toLowerCase();
  const worrying = document.getElementById("worrying").checked;
  const rows = document.querySelectorAll("table.routers tbody tr");
  let found = 0;
  rows.forEach((row, i) => {
    const { name, state } = routers[i];
    row.hidden = !name.toLowerCase().includes(part) || (worrying && !WORRIES.includes(state));
    found += row.hidden ? 0 : 1;
  });
  const words = found === rows.length ? "" : `${found} of ${rows.length}`;
  const output = document.getElementById("found");
  if (output.textContent !== words) output.textContent = words;
}

if (form) {
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
}
