"use strict";
// Filters the findings table by every word typed; without scripts the whole table stays.
(function () {
  const box = document.getElementById("filter");
  if (!box) return;
  const rows = Array.from(document.querySelectorAll("#finding-rows tbody tr"));
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const said = document.getElementById("filtered");
  box.closest("p").hidden = false;
  box.addEventListener("input", function () {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach(function (row, i) {
      const keep = words.every((word) => texts[i].includes(word));
      row.hidden = !keep;
      if (keep) shown += 1;
    });
    said.textContent = shown.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " shown";
  });
})();
