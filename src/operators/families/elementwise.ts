/**
 * Operators whose result's elements each follow from the same elements of their (broadcast) inputs, as C expressions.
 * Where ONNX's specification leaves results open, they are ONNX Runtime's.
 */
import { attributeOf, dataTypeOf, ElementType } from '../../onnx/index.ts';
import { scalarOf, type DataType } from '../../tensor/index.ts';
import { elementOf, floatLiteral } from '../element.ts';
import { always, ordinary, type OperatorFacts } from '../facts.ts';
import { is, like, named, unknown } from '../result-types.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';
import { floats, Unsupported, type Expression, type Reader } from '../writing.ts';

const isFloat = (datatype: DataType): boolean => floats.includes(datatype);

const typeOf = (node: Reader, index = 0): DataType => node.required(index).datatype;

/** The name of a math.h function for a datatype: 'exp', 'expf'. */
const math = (name: string, datatype: DataType): string => (datatype === 'FP64' ? name : `${name}f`);

/** A number as a C literal. */
function number(value: number, datatype: DataType): string {
  if (!isFloat(datatype)) return `(${Math.trunc(value)})`;
  if (Number.isFinite(value)) return floatLiteral(value, datatype === 'FP64' ? 'double' : 'float');
  throw new Unsupported(`its attribute ${value} is not a finite number`);
}

function needsFloat(node: Reader): DataType {
  const datatype = typeOf(node);
  if (!isFloat(datatype)) throw new Unsupported(`it takes floating point numbers, not ${datatype}`);
  return datatype;
}

function needsNumber(node: Reader): DataType {
  const datatype = typeOf(node);
  if (datatype === 'BOOL') throw new Unsupported('it takes numbers, not BOOL');
  elementOf(datatype);
  return datatype;
}

/** A function of floats. `c` makes a literal of the type, `f` the name of a math function for it. */
const ofFloats =
  (make: (x: string, tools: Tools) => string): Expression =>
  (node, [x = '']) => {
    const datatype = needsFloat(node);
    return make(x, {
      c: (value) => number(value, datatype),
      f: (name) => math(name, datatype),
      attribute: (name, otherwise) => number(node.attribute(name, otherwise), datatype),
    });
  };

interface Tools {
  readonly c: (value: number) => string;
  readonly f: (name: string) => string;
  readonly attribute: (name: string, otherwise: number) => string;
}

const called = (name: string): Expression => ofFloats((x, { f }) => `${f(name)}(${x})`);

/** Integers wrap around: the arithmetic is unsigned, because signed overflow is undefined in C. */
function wrapped(datatype: DataType, operator: string, a: string, b: string): string {
  if (datatype === 'INT64') return `(long long)((unsigned long long)${a} ${operator} (unsigned long long)${b})`;
  if (datatype === 'INT32') return `(int)((unsigned int)${a} ${operator} (unsigned int)${b})`;
  return `(${a} ${operator} ${b})`;
}

const arithmetic =
  (operator: '+' | '-' | '*'): Expression =>
  (node, [a = '', b = '']) =>
    wrapped(needsNumber(node), operator, a, b);

/** Integer division truncates. Division by zero gives 0; the specification leaves it open. */
const divide: Expression = (node, [a = '', b = '']) => {
  const datatype = needsNumber(node);
  if (isFloat(datatype)) return `(${a} / ${b})`;
  if (datatype === 'INT64' || datatype === 'INT32') {
    return `(${b} == 0 ? 0 : ${b} == -1 ? ${wrapped(datatype, '-', '0', a)} : ${a} / ${b})`;
  }
  return `(${b} == 0 ? 0 : ${a} / ${b})`;
};

const modulo: Expression = (node, [a = '', b = '']) => {
  const datatype = needsNumber(node);
  const asInC = node.attribute<number>('fmod', 0) === 1;
  if (isFloat(datatype)) {
    if (!asInC) throw new Unsupported('of floating point numbers only the form with fmod=1 is defined');
    return `${math('fmod', datatype)}(${a}, ${b})`;
  }
  const rest = `(${b} == 0 || ${b} == (${elementOf(datatype).computed})-1 ? 0 : ${a} % ${b})`;
  const unsigned = `(${b} == 0 ? 0 : ${a} % ${b})`;
  if (datatype.startsWith('UINT')) return unsigned;
  // As in Python, the result has the sign of the divisor.
  return asInC ? rest : `(${rest} != 0 && (${rest} < 0) != (${b} < 0) ? ${rest} + ${b} : ${rest})`;
};

const power: Expression = (node, [a = '', b = '']) => {
  const datatype = needsNumber(node);
  const exponent = node.constant(1);
  if (isFloat(datatype)) {
    const value = exponent?.datatype === 'FP32' ? scalarOf(exponent) : undefined;
    // As in ONNX Runtime; pow() takes a hundred times as long.
    if (value === 2) return `(${a} * ${a})`;
    if (value === 3) return `(${a} * ${a} * ${a})`;
    const type = elementOf(datatype).computed;
    return `${math('pow', datatype)}(${a}, (${type})${b})`;
  }
  return `(${elementOf(datatype).computed})pow((double)${a}, (double)${b})`;
};

/** The smallest or largest input; NaN if any is NaN. */
const extreme =
  (comparison: '<' | '>'): Expression =>
  (node, inputs) => {
    const datatype = needsNumber(node);
    return inputs.reduce((a, b) =>
      isFloat(datatype)
        ? `pick_${comparison === '<' ? 'smaller' : 'larger'}(${a}, ${b})`
        : `(${a} ${comparison} ${b} ? ${a} : ${b})`,
    );
  };

const compare =
  (operator: string): Expression =>
  (_emitter, [a = '', b = '']) =>
    `(${a} ${operator} ${b})`;

const logical =
  (make: (a: string, b: string) => string): Expression =>
  (node, [a = '', b = '']) => {
    if (typeOf(node) !== 'BOOL') throw new Unsupported(`it takes BOOL, not ${typeOf(node)}`);
    return make(a, b);
  };

const bitwise =
  (make: (a: string, b: string, node: Reader) => string): Expression =>
  (node, [a = '', b = '']) => {
    const datatype = needsNumber(node);
    if (isFloat(datatype)) throw new Unsupported(`it takes whole numbers, not ${datatype}`);
    return make(a, b, node);
  };

const clip: Expression = (node, [x = '', low = '', high = '']) => {
  const datatype = needsNumber(node);
  // Before opset 11 the limits are attributes.
  const attributes = node.opset < 11 && low === '' && high === '';
  const limit = (name: 'min' | 'max', given: string): string => {
    if (given !== '') return given;
    const value = attributes ? node.attribute(name, Number.NaN) : Number.NaN;
    return Number.isNaN(value) || Math.abs(value) > 3.4e38 ? '' : number(value, datatype);
  };
  const from = limit('min', low);
  const to = limit('max', high);
  const raised = from === '' ? x : `(${x} < ${from} ? ${from} : ${x})`;
  return to === '' ? `(${raised})` : `(${raised} > ${to} ? ${to} : ${raised})`;
};

const cast: Expression = (node, [x = '']) => {
  const from = typeOf(node);
  const to = node.output(0)?.datatype ?? from;
  if (to === 'BOOL') return `(${x} != 0)`;
  if (to === 'FP16' || to === 'BF16') {
    // Round here, since the next operator in the same kernel would read the wider value.
    const { load, store } = elementOf(to);
    return load(store(`(float)${x}`));
  }
  const type = elementOf(to).computed;
  // In C, converting a float beyond the range of a narrow type is undefined. Through a wide type it keeps the low bits.
  if (isFloat(from) && ['INT8', 'UINT8', 'INT16', 'UINT16'].includes(to)) return `(${type})(int)${x}`;
  if (isFloat(from) && to === 'UINT32') return `(${type})(long long)${x}`;
  return `(${type})${x}`;
};

const isInf: Expression = (node, [x = '']) => {
  const datatype = needsFloat(node);
  const most = datatype === 'FP64' ? '1.7976931348623157e308' : '3.4028234663852886e38f';
  const signs = [
    node.attribute<number>('detect_positive', 1) === 1 ? `${x} > ${most}` : '',
    node.attribute<number>('detect_negative', 1) === 1 ? `${x} < -${most}` : '',
  ].filter((text) => text !== '');
  return signs.length === 0 ? '0' : `(${signs.join(' || ')})`;
};

const geluErf = (x: string, { c, f }: Tools): string =>
  `(${c(0.5)} * ${x} * (${c(1)} + ${f('erf')}(${x} * ${c(Math.SQRT1_2)})))`;
const geluTanh = (x: string, { c, f }: Tools): string =>
  `(${c(0.5)} * ${x} * (${c(1)} + ${f('tanh')}(${c(Math.sqrt(2 / Math.PI))} * (${x} + ${c(0.044715)} * ${x} * ${x} * ${x}))))`;

const gelu: Expression = (node, x) =>
  ofFloats(node.attribute<string>('approximate', 'none') === 'tanh' ? geluTanh : geluErf)(node, x);

const added =
  (make: (x: string, tools: Tools) => string): Expression =>
  (node, [x = '', bias = '']) =>
    ofFloats(make)(node, [bias === '' ? x : `(${x} + ${bias})`]);

const sigmoid = (x: string, { c, f }: Tools): string => `(${c(1)} / (${c(1)} + ${f('exp')}(-${x})))`;
const between0and1 = (x: string, { c }: Tools): string =>
  `(${x} < ${c(0)} ? ${c(0)} : ${x} > ${c(1)} ? ${c(1)} : ${x})`;

/** x; scale, shift, mean and variance of each channel: a BatchNormalization whose parameters broadcast to x. */
export const scaleShift: Expression = (node, [x = '', scale = '', shift = '', mean = '', variance = '']) => {
  const datatype = needsFloat(node);
  const epsilon = number(node.attribute('epsilon', 1e-5), datatype);
  return `((${x} - ${mean}) * (${scale} / ${math('sqrt', datatype)}(${variance} + ${epsilon})) + ${shift})`;
};

type Expressed = OperatorFacts & { readonly expression: Expression };

const unary = (expression: Expression, others: Partial<OperatorFacts> = {}): Expressed => ({
  ...ordinary,
  shapes: shapes.sameAsFirst,
  rows: rows.broadcast,
  ...others,
  expression,
});
const several = (expression: Expression, others: Partial<OperatorFacts> = {}): Expressed =>
  unary(expression, { shapes: shapes.elementWise, ...others });
/** Arithmetic that shapes are computed with too, there of whole numbers. */
const counted = (
  expression: Expression,
  numbers: (a: number, b: number) => number,
  whole: (a: number, b: number) => number = numbers,
): Expressed => several(expression, { ...counting, numbers, shapes: shapes.arithmetic(whole) });
const truth = { types: [is(ElementType.BOOL)] } as const;
const jumping = { jumps: always };
const comparing = { ...truth, ...jumping };
const counting = { arithmetic: 'elements' } as const;
const activation = { leaf: 'activation' } as const;

/** The error function, within 1.2e-7 everywhere (Numerical Recipes, "erfc": a Chebyshev fit). */
export function erf(x: number): number {
  const t = 1 / (1 + 0.5 * Math.abs(x));
  const coefficients = [
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    -1.26551223,
  ];
  const sum = coefficients.reduce((result, coefficient) => result * t + coefficient, 0);
  const tail = t * Math.exp(-x * x + sum);
  return x >= 0 ? 1 - tail : tail - 1;
}

export const elementwise = {
  Add: counted(arithmetic('+'), (a, b) => a + b),
  Sub: counted(arithmetic('-'), (a, b) => a - b),
  Mul: counted(arithmetic('*'), (a, b) => a * b),
  Div: counted(
    divide,
    (a, b) => a / b,
    (a, b) => (b === 0 ? 0 : Math.trunc(a / b)),
  ),
  Mod: several(modulo, { ...jumping, shapes: shapes.arithmetic((a, b) => (b === 0 ? 0 : a % b)) }),
  Pow: several(power, { numbers: Math.pow }),
  Min: several(extreme('<'), counting),
  Max: several(extreme('>'), counting),
  Sum: several((node, inputs) => inputs.reduce((a, b) => wrapped(needsNumber(node), '+', a, b))),
  Mean: several((node, inputs) => `((${inputs.join(' + ')}) / ${number(inputs.length, needsFloat(node))})`),
  Neg: unary((node, [x = '']) => (isFloat(needsNumber(node)) ? `(-${x})` : wrapped(typeOf(node), '-', '0', x)), {
    ...counting,
    numbers: (x) => -x,
  }),
  Abs: unary((node, [x = '']) => {
    const datatype = needsNumber(node);
    if (isFloat(datatype)) return `${math('fabs', datatype)}(${x})`;
    return `(${x} < 0 ? ${wrapped(datatype, '-', '0', x)} : ${x})`;
  }),
  Sign: unary((node, [x = '']) => {
    needsNumber(node);
    return `(${x} > 0 ? 1 : ${x} < 0 ? -1 : 0)`;
  }, jumping),
  Reciprocal: unary(ofFloats((x, { c }) => `(${c(1)} / ${x})`)),
  Sqrt: unary(called('sqrt'), { numbers: Math.sqrt }),
  Exp: unary(called('exp'), { numbers: Math.exp }),
  Log: unary(called('log')),
  Erf: unary(called('erf'), { numbers: erf }),
  Tanh: unary(called('tanh'), { leaf: 'activation-behind-weights', numbers: Math.tanh }),
  Sin: unary(called('sin')),
  Cos: unary(called('cos')),
  Tan: unary(called('tan')),
  Asin: unary(called('asin')),
  Acos: unary(called('acos')),
  Atan: unary(called('atan')),
  Sinh: unary(called('sinh')),
  Cosh: unary(called('cosh')),
  Asinh: unary(called('asinh')),
  Acosh: unary(called('acosh')),
  Atanh: unary(called('atanh')),
  Floor: unary(called('floor'), { ...jumping, ...counting }),
  Ceil: unary(called('ceil'), { ...jumping, ...counting }),
  // rint rounds halves to even, as ONNX does.
  Round: unary(called('rint'), jumping),
  Sigmoid: unary(ofFloats(sigmoid), { leaf: 'activation-behind-weights', numbers: (x) => 1 / (1 + Math.exp(-x)) }),
  Relu: unary(
    (node, [x = '']) => {
      needsNumber(node);
      return `(${x} < 0 ? 0 : ${x})`;
    },
    { ...activation, activation: () => 'relu' },
  ),
  LeakyRelu: unary(
    ofFloats((x, { c, attribute }) => `(${x} < ${c(0)} ? ${attribute('alpha', 0.01)} * ${x} : ${x})`),
    activation,
  ),
  ThresholdedRelu: unary(
    ofFloats((x, { c, attribute }) => `(${x} > ${attribute('alpha', 1)} ? ${x} : ${c(0)})`),
    jumping,
  ),
  PRelu: several((node, [x = '', slope = '']) => {
    needsNumber(node);
    return `(${x} < 0 ? ${slope} * ${x} : ${x})`;
  }, activation),
  Elu: unary(
    ofFloats(
      (x, { c, f, attribute }) => `(${x} < ${c(0)} ? ${attribute('alpha', 1)} * (${f('exp')}(${x}) - ${c(1)}) : ${x})`,
    ),
    activation,
  ),
  Celu: unary(
    ofFloats((x, { c, f, attribute }) => {
      const alpha = attribute('alpha', 1);
      return `(${x} < ${c(0)} ? ${alpha} * (${f('exp')}(${x} / ${alpha}) - ${c(1)}) : ${x})`;
    }),
  ),
  Selu: unary(
    ofFloats((x, { c, f, attribute }) => {
      const negative = `${attribute('alpha', 1.67326319217681884765625)} * (${f('exp')}(${x}) - ${c(1)})`;
      return `(${attribute('gamma', 1.05070102214813232421875)} * (${x} > ${c(0)} ? ${x} : ${negative}))`;
    }),
    activation,
  ),
  Softplus: unary(
    ofFloats((x, { c, f }) => `((${x} > ${c(0)} ? ${x} : ${c(0)}) + ${f('log1p')}(${f('exp')}(-${f('fabs')}(${x}))))`),
  ),
  Softsign: unary(ofFloats((x, { c, f }) => `(${x} / (${c(1)} + ${f('fabs')}(${x})))`)),
  Mish: unary(
    ofFloats(
      (x, { c, f }) =>
        `(${x} * ${f('tanh')}((${x} > ${c(0)} ? ${x} : ${c(0)}) + ${f('log1p')}(${f('exp')}(-${f('fabs')}(${x})))))`,
    ),
  ),
  HardSigmoid: unary(
    ofFloats((x, tools) =>
      between0and1(`(${tools.attribute('alpha', 0.2)} * ${x} + ${tools.attribute('beta', 0.5)})`, tools),
    ),
    activation,
  ),
  HardSwish: unary(
    ofFloats((x, tools) => `(${x} * ${between0and1(`(${x} / ${tools.c(6)} + ${tools.c(0.5)})`, tools)})`),
    activation,
  ),
  Shrink: unary(
    ofFloats((x, { c, attribute }) => {
      const [bias, lambda] = [attribute('bias', 0), attribute('lambd', 0.5)];
      return `(${x} < -${lambda} ? ${x} + ${bias} : ${x} > ${lambda} ? ${x} - ${bias} : ${c(0)})`;
    }),
    jumping,
  ),
  Gelu: unary(gelu, {
    activation: (attribute) => (attribute('approximate', 'none') === 'tanh' ? 'gelu-tanh' : undefined),
  }),
  'com.microsoft.Gelu': unary(ofFloats(geluErf)),
  'com.microsoft.BiasGelu': unary(added((x, tools) => geluErf(x, tools))),
  'com.microsoft.FastGelu': unary(added((x, tools) => geluTanh(x, tools))),
  'com.microsoft.QuickGelu': unary(
    ofFloats((x, tools) => `(${x} * ${sigmoid(`(${tools.attribute('alpha', 1.702)} * ${x})`, tools)})`),
  ),
  Swish: unary(ofFloats((x, tools) => `(${x} * ${sigmoid(`(${tools.attribute('alpha', 1)} * ${x})`, tools)})`)),
  Equal: several(compare('=='), { ...comparing, shapes: shapes.arithmetic((a, b) => Number(a === b)) }),
  Less: several(compare('<'), comparing),
  Greater: several(compare('>'), comparing),
  LessOrEqual: several(compare('<='), comparing),
  GreaterOrEqual: several(compare('>='), comparing),
  And: several(
    logical((a, b) => `(${a} && ${b})`),
    truth,
  ),
  Or: several(
    logical((a, b) => `(${a} || ${b})`),
    truth,
  ),
  Xor: several(
    logical((a, b) => `((${a} != 0) != (${b} != 0))`),
    truth,
  ),
  Not: unary(
    logical((a) => `(!${a})`),
    truth,
  ),
  BitwiseAnd: several(bitwise((a, b) => `(${a} & ${b})`)),
  BitwiseOr: several(bitwise((a, b) => `(${a} | ${b})`)),
  BitwiseXor: several(bitwise((a, b) => `(${a} ^ ${b})`)),
  BitwiseNot: unary(bitwise((a) => `(~${a})`)),
  BitShift: several(
    bitwise((a, b, node) => {
      const direction = node.attribute<string>('direction', '');
      return `(${a} ${direction === 'LEFT' ? '<<' : '>>'} ${b})`;
    }),
  ),
  IsNaN: unary((node, [x = '']) => {
    needsFloat(node);
    return `(${x} != ${x})`;
  }, truth),
  IsInf: unary(isInf, truth),
  Where: several((_emitter, [condition = '', a = '', b = '']) => `(${condition} ? ${a} : ${b})`, {
    types: [like(1)],
    shapes: shapes.where,
  }),
  Clip: unary(clip, { ...activation, weights: 'first' }),
  Cast: unary(cast, {
    ...counting,
    types: [named('to', unknown)],
    shapes: shapes.same,
    keeps: 'elements',
    jumps: (node) => !isFloat(dataTypeOf(attributeOf(node, 'to', 1)) ?? 'BYTES'),
  }),
} satisfies Record<string, Expressed>;
