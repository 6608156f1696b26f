/**
 * Elementwise operators as C expressions, by the ONNX operator specification. Where it leaves results open, they are
 * ONNX Runtime's.
 */
import { Unsupported } from '../../../operators/index.ts';
import type { DataType } from '../../../tensor/index.ts';
import { typedEntries } from '../../../tools/index.ts';
import { elementOf, floatLiteral } from '../common/element.ts';
import type { Emitter, KernelName, KernelNameOf, Operator } from '../types.ts';

type Expression = (emitter: Emitter, x: readonly string[]) => string;

const floats = new Set<DataType>(['FP32', 'FP16', 'BF16', 'FP64']);
const isFloat = (datatype: DataType): boolean => floats.has(datatype);

const typeOf = (emitter: Emitter, index = 0): DataType => emitter.required(index).datatype;

/** The name of a math.h function for a datatype: 'exp', 'expf'. */
const math = (name: string, datatype: DataType): string => (datatype === 'FP64' ? name : `${name}f`);

/** A number as a C literal. */
function number(value: number, datatype: DataType): string {
  if (!isFloat(datatype)) return `(${Math.trunc(value)})`;
  if (Number.isFinite(value)) return floatLiteral(value, datatype === 'FP64' ? 'double' : 'float');
  throw new Unsupported(`its attribute ${value} is not a finite number`);
}

function needsFloat(emitter: Emitter): DataType {
  const datatype = typeOf(emitter);
  if (!isFloat(datatype)) throw new Unsupported(`it takes floating point numbers, not ${datatype}`);
  return datatype;
}

function needsNumber(emitter: Emitter): DataType {
  const datatype = typeOf(emitter);
  if (datatype === 'BOOL') throw new Unsupported('it takes numbers, not BOOL');
  elementOf(datatype);
  return datatype;
}

/** A function of floats. `c` makes a literal of the type, `f` the name of a math function for it. */
const ofFloats =
  (make: (x: string, tools: Tools) => string): Expression =>
  (emitter, [x = '']) => {
    const datatype = needsFloat(emitter);
    return make(x, {
      c: (value) => number(value, datatype),
      f: (name) => math(name, datatype),
      attribute: (name, otherwise) => number(emitter.attribute(name, otherwise), datatype),
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
  (emitter, [a = '', b = '']) =>
    wrapped(needsNumber(emitter), operator, a, b);

/** Integer division truncates. Division by zero gives 0; the specification leaves it open. */
const divide: Expression = (emitter, [a = '', b = '']) => {
  const datatype = needsNumber(emitter);
  if (isFloat(datatype)) return `(${a} / ${b})`;
  if (datatype === 'INT64' || datatype === 'INT32') {
    return `(${b} == 0 ? 0 : ${b} == -1 ? ${wrapped(datatype, '-', '0', a)} : ${a} / ${b})`;
  }
  return `(${b} == 0 ? 0 : ${a} / ${b})`;
};

const modulo: Expression = (emitter, [a = '', b = '']) => {
  const datatype = needsNumber(emitter);
  const asInC = emitter.attribute<number>('fmod', 0) === 1;
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

const power: Expression = (emitter, [a = '', b = '']) => {
  const datatype = needsNumber(emitter);
  const exponent = emitter.constant(1);
  if (isFloat(datatype)) {
    const known = exponent?.datatype === 'FP32' && exponent.shape.every((size) => size === 1);
    const value = known ? new DataView(exponent.data.buffer, exponent.data.byteOffset).getFloat32(0, true) : undefined;
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
  (emitter, inputs) => {
    const datatype = needsNumber(emitter);
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
  (emitter, [a = '', b = '']) => {
    if (typeOf(emitter) !== 'BOOL') throw new Unsupported(`it takes BOOL, not ${typeOf(emitter)}`);
    return make(a, b);
  };

const bitwise =
  (make: (a: string, b: string, emitter: Emitter) => string): Expression =>
  (emitter, [a = '', b = '']) => {
    const datatype = needsNumber(emitter);
    if (isFloat(datatype)) throw new Unsupported(`it takes whole numbers, not ${datatype}`);
    return make(a, b, emitter);
  };

const clip: Expression = (emitter, [x = '', low = '', high = '']) => {
  const datatype = needsNumber(emitter);
  // Before opset 11 the limits are attributes.
  const attributes = emitter.opset < 11 && low === '' && high === '';
  const limit = (name: 'min' | 'max', given: string): string => {
    if (given !== '') return given;
    const value = attributes ? emitter.attribute(name, Number.NaN) : Number.NaN;
    return Number.isNaN(value) || Math.abs(value) > 3.4e38 ? '' : number(value, datatype);
  };
  const from = limit('min', low);
  const to = limit('max', high);
  const raised = from === '' ? x : `(${x} < ${from} ? ${from} : ${x})`;
  return to === '' ? `(${raised})` : `(${raised} > ${to} ? ${to} : ${raised})`;
};

const cast: Expression = (emitter, [x = '']) => {
  const from = typeOf(emitter);
  const to = emitter.output(0)?.datatype ?? from;
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

const isInf: Expression = (emitter, [x = '']) => {
  const datatype = needsFloat(emitter);
  const most = datatype === 'FP64' ? '1.7976931348623157e308' : '3.4028234663852886e38f';
  const signs = [
    emitter.attribute<number>('detect_positive', 1) === 1 ? `${x} > ${most}` : '',
    emitter.attribute<number>('detect_negative', 1) === 1 ? `${x} < -${most}` : '',
  ].filter((text) => text !== '');
  return signs.length === 0 ? '0' : `(${signs.join(' || ')})`;
};

const geluErf = (x: string, { c, f }: Tools): string =>
  `(${c(0.5)} * ${x} * (${c(1)} + ${f('erf')}(${x} * ${c(Math.SQRT1_2)})))`;
const geluTanh = (x: string, { c, f }: Tools): string =>
  `(${c(0.5)} * ${x} * (${c(1)} + ${f('tanh')}(${c(Math.sqrt(2 / Math.PI))} * (${x} + ${c(0.044715)} * ${x} * ${x} * ${x}))))`;

const gelu: Expression = (emitter, x) =>
  ofFloats(emitter.attribute<string>('approximate', 'none') === 'tanh' ? geluTanh : geluErf)(emitter, x);

const added =
  (make: (x: string, tools: Tools) => string): Expression =>
  (emitter, [x = '', bias = '']) =>
    ofFloats(make)(emitter, [bias === '' ? x : `(${x} + ${bias})`]);

const sigmoid = (x: string, { c, f }: Tools): string => `(${c(1)} / (${c(1)} + ${f('exp')}(-${x})))`;
const between0and1 = (x: string, { c }: Tools): string =>
  `(${x} < ${c(0)} ? ${c(0)} : ${x} > ${c(1)} ? ${c(1)} : ${x})`;

const table: Readonly<Record<KernelNameOf<'elementwise'>, Expression>> = {
  Add: arithmetic('+'),
  Sub: arithmetic('-'),
  Mul: arithmetic('*'),
  Div: divide,
  Mod: modulo,
  Pow: power,
  Min: extreme('<'),
  Max: extreme('>'),
  Sum: (emitter, inputs) => inputs.reduce((a, b) => wrapped(needsNumber(emitter), '+', a, b)),
  Mean: (emitter, inputs) => `((${inputs.join(' + ')}) / ${number(inputs.length, needsFloat(emitter))})`,
  Neg: (emitter, [x = '']) => (isFloat(needsNumber(emitter)) ? `(-${x})` : wrapped(typeOf(emitter), '-', '0', x)),
  Abs: (emitter, [x = '']) => {
    const datatype = needsNumber(emitter);
    if (isFloat(datatype)) return `${math('fabs', datatype)}(${x})`;
    return `(${x} < 0 ? ${wrapped(datatype, '-', '0', x)} : ${x})`;
  },
  Sign: (emitter, [x = '']) => {
    needsNumber(emitter);
    return `(${x} > 0 ? 1 : ${x} < 0 ? -1 : 0)`;
  },
  Reciprocal: ofFloats((x, { c }) => `(${c(1)} / ${x})`),
  Sqrt: called('sqrt'),
  Exp: called('exp'),
  Log: called('log'),
  Erf: called('erf'),
  Tanh: called('tanh'),
  Sin: called('sin'),
  Cos: called('cos'),
  Tan: called('tan'),
  Asin: called('asin'),
  Acos: called('acos'),
  Atan: called('atan'),
  Sinh: called('sinh'),
  Cosh: called('cosh'),
  Asinh: called('asinh'),
  Acosh: called('acosh'),
  Atanh: called('atanh'),
  Floor: called('floor'),
  Ceil: called('ceil'),
  // rint rounds halves to even, as ONNX does.
  Round: called('rint'),
  Sigmoid: ofFloats(sigmoid),
  Relu: (emitter, [x = '']) => {
    needsNumber(emitter);
    return `(${x} < 0 ? 0 : ${x})`;
  },
  LeakyRelu: ofFloats((x, { c, attribute }) => `(${x} < ${c(0)} ? ${attribute('alpha', 0.01)} * ${x} : ${x})`),
  ThresholdedRelu: ofFloats((x, { c, attribute }) => `(${x} > ${attribute('alpha', 1)} ? ${x} : ${c(0)})`),
  PRelu: (emitter, [x = '', slope = '']) => {
    needsNumber(emitter);
    return `(${x} < 0 ? ${slope} * ${x} : ${x})`;
  },
  Elu: ofFloats(
    (x, { c, f, attribute }) => `(${x} < ${c(0)} ? ${attribute('alpha', 1)} * (${f('exp')}(${x}) - ${c(1)}) : ${x})`,
  ),
  Celu: ofFloats((x, { c, f, attribute }) => {
    const alpha = attribute('alpha', 1);
    return `(${x} < ${c(0)} ? ${alpha} * (${f('exp')}(${x} / ${alpha}) - ${c(1)}) : ${x})`;
  }),
  Selu: ofFloats((x, { c, f, attribute }) => {
    const negative = `${attribute('alpha', 1.67326319217681884765625)} * (${f('exp')}(${x}) - ${c(1)})`;
    return `(${attribute('gamma', 1.05070102214813232421875)} * (${x} > ${c(0)} ? ${x} : ${negative}))`;
  }),
  Softplus: ofFloats(
    (x, { c, f }) => `((${x} > ${c(0)} ? ${x} : ${c(0)}) + ${f('log1p')}(${f('exp')}(-${f('fabs')}(${x}))))`,
  ),
  Softsign: ofFloats((x, { c, f }) => `(${x} / (${c(1)} + ${f('fabs')}(${x})))`),
  Mish: ofFloats(
    (x, { c, f }) =>
      `(${x} * ${f('tanh')}((${x} > ${c(0)} ? ${x} : ${c(0)}) + ${f('log1p')}(${f('exp')}(-${f('fabs')}(${x})))))`,
  ),
  HardSigmoid: ofFloats((x, tools) =>
    between0and1(`(${tools.attribute('alpha', 0.2)} * ${x} + ${tools.attribute('beta', 0.5)})`, tools),
  ),
  HardSwish: ofFloats((x, tools) => `(${x} * ${between0and1(`(${x} / ${tools.c(6)} + ${tools.c(0.5)})`, tools)})`),
  Shrink: ofFloats((x, { c, attribute }) => {
    const [bias, lambda] = [attribute('bias', 0), attribute('lambd', 0.5)];
    return `(${x} < -${lambda} ? ${x} + ${bias} : ${x} > ${lambda} ? ${x} - ${bias} : ${c(0)})`;
  }),
  Gelu: gelu,
  'com.microsoft.Gelu': ofFloats(geluErf),
  'com.microsoft.BiasGelu': added((x, tools) => geluErf(x, tools)),
  'com.microsoft.FastGelu': added((x, tools) => geluTanh(x, tools)),
  'com.microsoft.QuickGelu': ofFloats(
    (x, tools) => `(${x} * ${sigmoid(`(${tools.attribute('alpha', 1.702)} * ${x})`, tools)})`,
  ),
  Swish: ofFloats((x, tools) => `(${x} * ${sigmoid(`(${tools.attribute('alpha', 1)} * ${x})`, tools)})`),
  Equal: compare('=='),
  Less: compare('<'),
  Greater: compare('>'),
  LessOrEqual: compare('<='),
  GreaterOrEqual: compare('>='),
  And: logical((a, b) => `(${a} && ${b})`),
  Or: logical((a, b) => `(${a} || ${b})`),
  Xor: logical((a, b) => `((${a} != 0) != (${b} != 0))`),
  Not: logical((a) => `(!${a})`),
  BitwiseAnd: bitwise((a, b) => `(${a} & ${b})`),
  BitwiseOr: bitwise((a, b) => `(${a} | ${b})`),
  BitwiseXor: bitwise((a, b) => `(${a} ^ ${b})`),
  BitwiseNot: bitwise((a) => `(~${a})`),
  BitShift: bitwise((a, b, emitter) => {
    const direction = emitter.attribute<string>('direction', '');
    return `(${a} ${direction === 'LEFT' ? '<<' : '>>'} ${b})`;
  }),
  IsNaN: (emitter, [x = '']) => {
    needsFloat(emitter);
    return `(${x} != ${x})`;
  },
  IsInf: isInf,
  Where: (_emitter, [condition = '', a = '', b = '']) => `(${condition} ? ${a} : ${b})`,
  Clip: clip,
  Cast: cast,
  // x; scale, shift, mean and variance of each channel: a BatchNormalization whose parameters broadcast to x.
  'turntable.ScaleShift': (emitter, [x = '', scale = '', shift = '', mean = '', variance = '']) => {
    const datatype = needsFloat(emitter);
    const epsilon = number(emitter.attribute('epsilon', 1e-5), datatype);
    return `((${x} - ${mean}) * (${scale} / ${math('sqrt', datatype)}(${variance} + ${epsilon})) + ${shift})`;
  },
};

function expressionOf(expression: Expression, emitter: Emitter, inputs: readonly string[]): string {
  // Refuses BYTES here, by name, instead of a kernel that does not compile.
  for (let index = 0; index < inputs.length; index++) {
    const value = emitter.input(index);
    if (value !== undefined) elementOf(value.datatype);
  }
  return expression(emitter, inputs);
}

/** Empty results need no launch. All others are emitted by program/groups.ts, which joins neighbouring nodes. */
export function emitNothing(emitter: Emitter): void {
  if ((emitter.output(0)?.elements ?? 0) > 0) throw new Unsupported('it has several results');
}

const sameDatatype = (emitter: Emitter): number | undefined =>
  emitter.required(0).datatype === emitter.output(0)?.datatype ? 0 : undefined;

const operatorOf = <Type extends KernelName>([type, expression]: readonly [Type, Expression]): Operator<Type> => ({
  type,
  elementwise: (emitter, inputs) => expressionOf(expression, emitter, inputs),
  emit: emitNothing,
});

export const elementwiseOperators = typedEntries<KernelNameOf<'elementwise'>, Expression>(table).map((entry) =>
  entry[0] === 'Cast' ? Object.assign(operatorOf(entry), { viewOf: sameDatatype }) : operatorOf(entry),
);
