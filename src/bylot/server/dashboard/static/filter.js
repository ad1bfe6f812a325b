// Filters the list of routers by name, or to those that need attention.

const form = document.getElementById("filter");
let routers = [];

export function filter(data) {
  if (!form) return;
  routers = data.routers;
  form.hidden = false;
  apply();
}

function apply() {
  const part = document.getElementById("contains").value.trim().toLowerCase();
  const attention = document.getElementById("attention").checked;
  const rows = document.querySelectorAll("table.routers tbody tr");
  let found = 0;
  rows.forEach((row, i) => {
    const { name, state } = routers[i];
    const isOk = !state || state.level === "ok";
    row.hidden = !name.toLowerCase().includes(part) || (attention && isOk);
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
