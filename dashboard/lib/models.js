// The tensors of a model that a task file describes, as `tributary task create` completes them: from an architecture, or from a graph.

/** Longest graph that devices read, in bytes. */
export const GRAPH_MAX = 512 * 1024;
const GRAPH_VERSION = 1;

const CHANNELS = [32, 64];
const [UNITS, KERNEL, POOLED] = [512, 5, 4];
/** √3, so that a uniform embedding has the variance 1. */
const EMBEDDING = Math.fround(1.7320508);
const USUAL = {
  linear: {},
  mlp: { inputs: 784, hidden: [200], classes: 10 },
  cnn: { height: 28, width: 28, channels: 1, classes: 10 },
  gru: { embedding: 8, hidden: 128, layers: 1 },
};

/** The kinds of ready models with sizes to begin with: those that may be left out, and images of 28 × 28 or text of 96 characters. */
export const KINDS = { linear: { inputs: 784, classes: 10 }, mlp: USUAL.mlp, cnn: USUAL.cnn, gru: { vocabulary: 96, ...USUAL.gru } };

const drawn = (name, shape, init) => ({ name, shape, init });
/** A tensor drawn from ± 1 / √inputs. */
const uniform = (name, shape, inputs) => drawn(name, shape, { uniform: { bound: Math.fround(Math.sqrt(1 / inputs)) } });

const TENSORS = {
  linear: ({ inputs, classes }) => [drawn('fc.weight', [classes, inputs], 'zeros'), drawn('fc.bias', [classes], 'zeros')],
  mlp: ({ inputs, hidden, classes }) => {
    const widths = [inputs, ...hidden, classes];
    return widths.slice(1).flatMap((width, at) => [uniform(`fc${at + 1}.weight`, [width, widths[at]], widths[at]), uniform(`fc${at + 1}.bias`, [width], widths[at])]);
  },
  cnn: ({ height, width, channels, classes }) => {
    const [first, second] = CHANNELS;
    const features = Math.floor(height / POOLED) * Math.floor(width / POOLED) * second;
    return [
      ['conv1', [first, channels, KERNEL, KERNEL], KERNEL * KERNEL * channels],
      ['conv2', [second, first, KERNEL, KERNEL], KERNEL * KERNEL * first],
      ['fc1', [UNITS, features], features],
      ['fc2', [classes, UNITS], UNITS],
    ].flatMap(([name, shape, inputs]) => [uniform(`${name}.weight`, shape, inputs), uniform(`${name}.bias`, shape.slice(0, 1), inputs)]);
  },
  gru: ({ vocabulary, embedding, hidden, layers }) => [
    drawn('embedding.weight', [vocabulary, embedding], { uniform: { bound: EMBEDDING } }),
    ...Array.from({ length: layers }, (_, layer) => [
      ['weight_ih', [3 * hidden, layer === 0 ? embedding : hidden]],
      ['weight_hh', [3 * hidden, hidden]],
      ['bias_ih', [3 * hidden]],
      ['bias_hh', [3 * hidden]],
    ].map(([name, shape]) => uniform(`gru.${name}_l${layer}`, shape, hidden))).flat(),
    uniform('fc.weight', [vocabulary, hidden], hidden),
    uniform('fc.bias', [vocabulary], hidden),
  ],
};

const isWhole = (value) => Number.isSafeInteger(value) && value >= 1 && value <= 2 ** 20;

/** Inputs and classes of a table’s columns, if they determine them. */
function sizesOf(table) {
  const classes = table?.label?.one_of?.length;
  return classes ? { inputs: table.features.reduce((sum, { one_of }) => sum + Math.max(1, one_of?.length ?? 0), 0), classes } : {};
}

/** The model of a task file with the sizes and tensors that follow from its architecture. An error says what is missing. */
export function completed(model) {
  const { architecture, table } = model;
  const kind = architecture?.kind;
  if (!Object.hasOwn(TENSORS, kind ?? '') || model.tensors?.length > 0) return model;
  const columns = sizesOf(table);
  if (kind === 'gru' && columns.classes) throw new Error('model.architecture: gru predicts characters, and a table has none');
  const side = Math.sqrt(columns.inputs);
  const ofTable = kind === 'cnn' && columns.inputs ? { height: side, width: side, channels: 1, classes: columns.classes } : columns;
  const sizes = { ...USUAL[kind], ...ofTable, ...architecture };
  const needed = { linear: ['inputs', 'classes'], gru: ['vocabulary'] }[kind] ?? [];
  for (const [name, value] of [...needed.map((one) => [one, undefined]), ...Object.entries(sizes)]) {
    const size = sizes[name] ?? value;
    if (name !== 'kind' && ![size].flat().every(isWhole)) throw new Error(`model.architecture: ${name} of ${kind} is ${JSON.stringify(size) ?? 'missing'}; it is a whole number above 0`);
  }
  const misfit = kind !== 'cnn' && Object.keys(columns).find((name) => sizes[name] !== columns[name]);
  if (misfit) throw new Error(`model.architecture: ${misfit} is ${sizes[misfit]}; the columns of model.table need ${columns[misfit]}: leave it out`);
  return { ...model, architecture: columns.classes ? sizes : architecture, tensors: TENSORS[kind](sizes) };
}

/** A file that `tributary model import` wrote: its graph, and its text as it is, since browsers round long integers. */
export async function readGraph(file) {
  if (file.size > GRAPH_MAX) throw new Error(`has ${file.size} bytes; a graph has at most ${GRAPH_MAX}`);
  const text = await file.text();
  let graph;
  try {
    graph = JSON.parse(text);
  } catch (error) {
    throw new Error(`is no JSON: ${error.message}`);
  }
  const isShaped = ({ name, shape } = {}) => typeof name === 'string' && Array.isArray(shape);
  const lists = [graph?.inputs, graph?.parameters, graph?.nodes, graph?.outputs];
  if (!lists.every(Array.isArray) || ![...graph.inputs, ...graph.parameters].every(isShaped)) throw new Error('is no graph: `tributary model import` writes one');
  if (graph.version !== GRAPH_VERSION) throw new Error(`has the format ${graph.version}; this coordinator knows ${GRAPH_VERSION}`);
  return { text, graph, tensors: tensorsOf(graph) };
}

/** The parameters of a graph, with the initial values that they get without a given model. */
function tensorsOf(graph) {
  return graph.parameters.map(({ name, shape }, position) => {
    if (shape.length <= 1) return drawn(name, shape, isScale(graph, graph.inputs.length + position) ? 'ones' : 'zeros');
    return uniform(name, shape, Math.max(1, shape.slice(1).reduce((all, size) => all * size, 1)));
  });
}

const NORMS = ['layer_norm', 'group_norm', 'batch_norm'];
const RESULTS = { lstm: 3, gru: 2, rnn: 2 };

/** Whether a value is the scale of a normalization, or a factor, also in another shape. */
function isScale(graph, value) {
  let result = graph.inputs.length + graph.parameters.length + (graph.constants?.length ?? 0);
  const ofValue = new Set([value]);
  for (const { do: operation, of: inputs } of graph.nodes) {
    const name = typeof operation === 'string' ? operation : Object.keys(operation)[0];
    if (NORMS.includes(name) && ofValue.has(inputs[1])) return true;
    if (inputs.some((input) => ofValue.has(input))) {
      if (operation.arithmetic === 'mul') return true;
      if (name === 'reshape' || name === 'expand') ofValue.add(result);
    }
    result += RESULTS[operation.recurrent?.cell] ?? 1;
  }
  return false;
}
