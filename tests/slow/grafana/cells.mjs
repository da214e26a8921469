// Reads {panel, frames} as JSON from standard input, and writes the rows of texts that Grafana shows in the table.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { JSDOM } from "jsdom";

const { window } = new JSDOM("", { url: "http://localhost/" });
for (const name of ["document", "navigator", "localStorage"]) {
  Object.defineProperty(globalThis, name, { value: window[name], configurable: true });
}
globalThis.window = window;

const data = createRequire(import.meta.url)("@grafana/data");
const { firstValueFrom } = await import("rxjs");

const asIs = (value) => value;
const option = (id) => ({ id, path: id, name: id, override: asIs, process: asIs, shouldApply: () => true });
const standard = ["unit", "noValue", "decimals", "mappings", "thresholds", "links", "color"].map(option);
const custom = ["width", "cellOptions"].map((id) => ({ ...option(id), id: `custom.${id}`, isCustom: true }));
data.standardTransformersRegistry.setInit(() =>
  ["mergeTransformer", "organizeFieldsTransformer", "sortByTransformer"]
    .map((name) => data.standardTransformers[name])
    .map((transformation) => ({ id: transformation.id, name: transformation.id, transformation })),
);

const { panel, frames } = JSON.parse(readFileSync(0, "utf8"));
const read = frames.map(({ refId, fields }) => data.toDataFrame({ refId, fields }));
const transformed = await firstValueFrom(data.transformDataFrame(panel.transformations, read));
const shown = data.applyFieldOverrides({
  data: transformed,
  fieldConfig: panel.fieldConfig,
  fieldConfigRegistry: new data.Registry(() => [...standard, ...custom]),
  replaceVariables: asIs,
  theme: data.createTheme(),
  timeZone: "utc",
});
const rows = shown.flatMap((frame) =>
  Array.from({ length: frame.length }, (_, index) =>
    Object.fromEntries(
      frame.fields.map((field) => [
        data.getFieldDisplayName(field, frame, shown),
        data.formattedValueToString(field.display(field.values[index])),
      ]),
    ),
  ),
);
process.stdout.write(`\n${JSON.stringify(rows)}\n`);
