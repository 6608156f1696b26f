/** Element types of results, which exports often leave out of the file: a cut through a value needs at least its type. */
import { attributeOf, type ElementType, type NodeProto } from '../onnx/index.ts';

/** The element type of the result at `place`; undefined if it is not known. */
export type ResultType = (
  node: NodeProto,
  typeOfInput: (place: number) => number | undefined,
  place: number,
) => number | undefined;

/** This type, whatever the inputs have. */
export const is =
  (type: ElementType): ResultType =>
  () =>
    type;

/** That of the input at a place. */
export const like =
  (place: number): ResultType =>
  (_node, typeOfInput) =>
    typeOfInput(place);

/** The type that an attribute names. */
export const named =
  (attribute: string, otherwise: ResultType): ResultType =>
  (node, ...rest) =>
    attributeOf(node, attribute, 0) || otherwise(node, ...rest);

export const either =
  (type: ResultType, otherwise: ResultType): ResultType =>
  (...given) =>
    type(...given) ?? otherwise(...given);

export const unknown: ResultType = () => undefined;

/** Control flow: that of a result of its body, whose first results may be for the operator alone. */
export const ofBody =
  (body: string, offset = 0): ResultType =>
  ({ attribute }, _typeOfInput, place) =>
    attribute.find(({ name }) => name === body)?.g?.output[place + offset]?.type?.tensorType?.elemType || undefined;
