/** POST `{"months": 3, "monthlyFee": 80, "contract": "monthly", "calls": 4}` and get a probability and what to do. */
import type { HandlerCall, HandlerTensor } from 'turntable';

type Column =
  | { readonly kind: 'number'; readonly min: number; readonly max: number }
  | { readonly kind: 'one of'; readonly values: readonly string[] };

/** In the model's order. A column of choices becomes a 1 among zeros. */
const columns: Readonly<Record<string, Column>> = {
  months: { kind: 'number', min: 0, max: 1200 },
  monthlyFee: { kind: 'number', min: 0, max: 10_000 },
  calls: { kind: 'number', min: 0, max: 1000 },
  contract: { kind: 'one of', values: ['monthly', 'yearly', 'two years'] },
};

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const row = Object(request.json()) as Record<string, unknown>;
  const mistakes: string[] = [];
  const data = Object.entries(columns).flatMap(([name, column]) => {
    const values = valuesOf(column, row[name]);
    if (values === undefined) mistakes.push(`'${name}' must be ${allowed(column)}`);
    return values ?? [];
  });
  for (const name of Object.keys(row)) if (!Object.hasOwn(columns, name)) mistakes.push(`'${name}' is no column`);
  if (mistakes.length > 0) throw Object.assign(new Error(mistakes.join('; ')), { status: 400 });
  return [{ name: 'row', datatype: 'FP32', shape: [1, data.length], data }];
}

export function postprocess(tensors: readonly HandlerTensor[]): { probability: number; decision: string } {
  const probability = Math.round(Number(tensors[0]?.data[0]) * 1000) / 1000;
  return { probability, decision: probability > 0.5 ? 'call them' : 'leave them alone' };
}

function valuesOf(column: Column, value: unknown): number[] | undefined {
  switch (column.kind) {
    case 'number': {
      const isInside = typeof value === 'number' && value >= column.min && value <= column.max;
      return isInside ? [value] : undefined;
    }
    case 'one of': {
      const at = column.values.indexOf(value as string);
      return at < 0 ? undefined : column.values.map((_, index) => (index === at ? 1 : 0));
    }
  }
}

function allowed(column: Column): string {
  switch (column.kind) {
    case 'number':
      return `a number from ${column.min} to ${column.max}`;
    case 'one of':
      return `one of ${column.values.join(', ')}`;
  }
}
