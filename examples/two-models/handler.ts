/** POST `{"months": 3, "monthlyFee": 80, "calls": 4}` and get the contract to offer. Needs the function `tabular`. */
import type { HandlerCall, HandlerContext, HandlerTensor } from 'turntable';

const offers = [
  { contract: 'monthly', price: 1 },
  { contract: 'yearly', price: 0.9 },
  { contract: 'two years', price: 0.75 },
];

export async function preprocess(request: HandlerCall, context: HandlerContext): Promise<HandlerTensor[]> {
  const customer = Object(request.json()) as Record<string, unknown>;
  const [months, monthlyFee, calls] = ['months', 'monthlyFee', 'calls'].map((name) => {
    const value = customer[name];
    if (typeof value === 'number' && value >= 0) return value;
    throw Object.assign(new Error(`'${name}' must be a number of at least 0`), { status: 400 });
  }) as [number, number, number];
  // One row for each offer: the contract is a 1 among zeros.
  const rows = offers.flatMap(({ price }, at) => [
    months,
    monthlyFee * price,
    calls,
    ...offers.map((_, index) => (index === at ? 1 : 0)),
  ]);
  const shape = [offers.length, 1];
  const [leaving] = await context.invoke('tabular', [
    { name: 'row', datatype: 'FP32', shape: [offers.length, 6], data: rows },
  ]);
  return [
    { name: 'leaving', datatype: 'FP32', shape, data: leaving!.data },
    { name: 'fee', datatype: 'FP32', shape, data: offers.map(({ price }) => 12 * price * monthlyFee) },
  ];
}

export function postprocess(tensors: readonly HandlerTensor[]): { offer: string; worth: Record<string, number> } {
  const worth = offers.map(({ contract }, at) => [contract, Math.round(Number(tensors[0]?.data[at]))] as const);
  const [best] = worth.toSorted(([, a], [, b]) => b - a);
  return { offer: best![0], worth: Object.fromEntries(worth) };
}
