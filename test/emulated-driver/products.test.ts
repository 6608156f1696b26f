import { describe, expect, test } from 'vitest';
import { OK, type Driver } from './calls.ts';
import { driver, machine, type Machine } from './fixture.ts';

describe.skipIf(driver === undefined)('matrix products', () => {
  const d = driver as Driver;
  const { cu, lt, out } = d ?? {};
  const one = { devices: [{ memoryBytes: 16 << 20 }] };

  interface Options {
    readonly compute?: number;
    readonly epilogue?: number;
    readonly bias?: number;
    readonly order?: number;
    readonly transposeA?: boolean;
    readonly batch?: number;
    readonly alignment?: number;
    readonly workspaceMax?: number;
    readonly workspaceBytes?: number;
  }

  const number32 = (value: number): number => {
    const place = d.memory(8);
    d.arena.setInt32(place.at, value, true);
    return place.address;
  };
  const number64 = (value: number): number => d.pointers([value]);

  /** D[m,n] = A x B in the library's column-major form, in its own stream; returns the first status that is not 0. */
  function product(
    m: Machine,
    [rows, columns, inner]: readonly [number, number, number],
    [a, b, result]: readonly [number, number, number],
    options: Options = {},
  ): number {
    const { batch = 1, order = 0, transposeA = false } = options;
    const handle = out((slot) => lt.cublasLtCreate(slot));
    const description = out((slot) => lt.cublasLtMatmulDescCreate(slot, options.compute ?? 68, 0));
    lt.cublasLtMatmulDescSetAttribute(description, 3, number32(transposeA ? 1 : 0), 4);
    lt.cublasLtMatmulDescSetAttribute(description, 7, number32(options.epilogue ?? 1), 4);
    if (options.bias !== undefined) lt.cublasLtMatmulDescSetAttribute(description, 8, number64(options.bias), 8);
    const layout = (r: number, c: number): number => {
      const made = out((slot) => lt.cublasLtMatrixLayoutCreate(slot, 0, r, c, order === 1 ? c : r));
      lt.cublasLtMatrixLayoutSetAttribute(made, 1, number32(order), 4);
      lt.cublasLtMatrixLayoutSetAttribute(made, 5, number32(batch), 4);
      lt.cublasLtMatrixLayoutSetAttribute(made, 6, number64(r * c), 8);
      return made;
    };
    const layouts = [
      transposeA ? layout(inner, rows) : layout(rows, inner),
      layout(inner, columns),
      layout(rows, columns),
    ] as const;
    const [la, lb, ld] = layouts;
    const preference = out((slot) => lt.cublasLtMatmulPreferenceCreate(slot));
    if (options.workspaceMax !== undefined)
      lt.cublasLtMatmulPreferenceSetAttribute(preference, 1, number64(options.workspaceMax), 8);
    for (let i = 5; i <= 8; i++)
      lt.cublasLtMatmulPreferenceSetAttribute(preference, i, number32(options.alignment ?? 4), 4);
    const found = d.memory(96);
    let status = lt.cublasLtMatmulAlgoGetHeuristic(
      handle,
      description,
      la,
      lb,
      ld,
      ld,
      preference,
      1,
      found.address,
      number32(0),
    );
    const scalars = d.memory(8);
    d.arena.setFloat32(scalars.at, 1, true);
    const workspace = options.workspaceBytes === undefined ? 0 : m.alloc(options.workspaceBytes);
    const stream = m.stream();
    if (status === OK)
      status = lt.cublasLtMatmul(
        handle,
        description,
        scalars.address,
        a,
        la,
        b,
        lb,
        scalars.address + 4,
        result,
        ld,
        result,
        ld,
        found.address,
        workspace,
        options.workspaceBytes ?? 0,
        stream,
      );
    if (status === OK) status = cu.cuStreamSynchronize(stream);
    for (const made of layouts) lt.cublasLtMatrixLayoutDestroy(made);
    lt.cublasLtMatmulPreferenceDestroy(preference);
    lt.cublasLtMatmulDescDestroy(description);
    lt.cublasLtDestroy(handle);
    return status;
  }

  test('the product matches the definition, transposed, in batches, with bias and relu', () => {
    const m = machine(d, one);
    const [rows, columns, inner, batch] = [5, 3, 7, 2];
    const a = m.pinned(Float32Array.from({ length: batch * rows * inner }, (_, i) => Math.sin(i)));
    const b = m.pinned(Float32Array.from({ length: batch * inner * columns }, (_, i) => Math.cos(i)));
    const bias = m.pinned([1, -1, 0.5, -0.5, 0]);
    const result = m.pinned(new Float32Array(batch * rows * columns));
    const addresses = [a.address, b.address, result.address] as const;
    for (const transposeA of [false, true])
      for (const relu of [false, true]) {
        const options = { batch, transposeA, bias: bias.address, epilogue: relu ? 6 : 4 };
        expect(product(m, [rows, columns, inner], addresses, options)).toBe(OK);
        for (let item = 0; item < batch; item++)
          for (let column = 0; column < columns; column++)
            for (let row = 0; row < rows; row++) {
              let sum = bias.values[row] ?? 0;
              for (let k = 0; k < inner; k++) {
                const left = a.values[item * rows * inner + (transposeA ? k + row * inner : row + k * rows)] ?? 0;
                sum += left * (b.values[item * inner * columns + k + column * inner] ?? 0);
              }
              const expected = relu ? Math.max(0, sum) : sum;
              expect(result.values[item * rows * columns + row + column * rows]).toBeCloseTo(expected, 5);
            }
      }
    expect(lt.emuLtLive()).toBe(0);
  });

  test('TF32 rounds the factors to 10 bits, and the gelu is the tanh form', () => {
    const m = machine(d, one);
    const [a, b, result] = [m.pinned([1 + 2 ** -11 + 2 ** -12]), m.pinned([1]), m.pinned([0])];
    const addresses = [a.address, b.address, result.address] as const;
    expect(product(m, [1, 1, 1], addresses, { compute: 77 })).toBe(OK);
    expect(result.values[0]).toBe(1 + 2 ** -10);
    a.values[0] = 1.5;
    expect(product(m, [1, 1, 1], addresses, { epilogue: 32 })).toBe(OK);
    const tanh = 0.75 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (1.5 + 0.044715 * 1.5 ** 3)));
    expect(result.values[0]).toBeCloseTo(tanh, 6);
  });

  test('a bias with a row-ordered result is refused, and so are a missing workspace and a broken alignment promise', () => {
    const m = machine(d, one);
    const memory = m.alloc(4096);
    const bias = m.alloc(64);
    const addresses = [memory, memory + 1024, memory + 2048] as const;
    expect(product(m, [4, 4, 4], addresses, { order: 1, epilogue: 4, bias })).toBe(15);
    expect(product(m, [4, 4, 4], addresses, { order: 1 })).toBe(OK);
    expect(product(m, [4, 4, 4], addresses, { workspaceMax: 1 << 20 })).toBe(7);
    expect(product(m, [4, 4, 4], addresses, { workspaceMax: 1 << 20, workspaceBytes: 1 << 16 })).toBe(OK);
    expect(product(m, [4, 4, 4], [memory + 4, memory + 1024, memory + 2048], { alignment: 16 })).toBe(7);
    expect(product(m, [4, 4, 4], addresses, { compute: 64 })).toBe(15);
  });

  test('a product that reads weights before their copy races with it', () => {
    const m = machine(d, one);
    const host = m.pinned(new Float32Array(16));
    const memory = m.alloc(4096);
    cu.cuMemcpyAsync(memory, host.address, 64, m.stream());
    expect(product(m, [4, 4, 4], [memory, memory + 1024, memory + 2048])).toBe(OK);
    expect(d.report().races).toHaveLength(1);
    expect(d.report().races[0]).toMatch(/^a product of 4x4x4 on stream .* reads bytes .* 64 bytes: a copy of 64 bytes/);
  });
});
