/** The catalogue of errors, its page, and the code agree. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CpuError } from '../../src/cpu/index.ts';
import { catalogue, HostError, toHostError, type CatalogueEntry } from '../../src/host/errors.ts';
import { outcomeOf } from '../../src/host/calls/invoke-failures.ts';
import { packageRoot } from '../../src/host/config/options.ts';
import { TensorError } from '../../src/tensor/index.ts';

const entries: [string, CatalogueEntry][] = Object.entries(catalogue);

test('docs/errors.md and the catalogue name the same codes with the same status', () => {
  const page = readFileSync(join(packageRoot, 'docs', 'errors.md'), 'utf8');
  const documented = Array.from(page.matchAll(/^\| (\d{3}) +\| `([a-z-]+)`/gm), ([, status, code]) => [
    code,
    Number(status),
  ]);
  expect(Object.fromEntries(documented)).toEqual(
    Object.fromEntries(entries.map(([code, { status }]) => [code, status])),
  );
});

test('every code of the catalogue is used somewhere', () => {
  const folder = join(packageRoot, 'src');
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.ts') && !file.endsWith('.test.ts') && !file.endsWith('host/errors.ts'),
  );
  const source = files.map((file) => readFileSync(join(folder, file), 'utf8')).join('\n');
  // toHostError makes `internal`; the sources above leave that file out.
  expect(entries.map(([code]) => code).filter((code) => code !== 'internal' && !source.includes(`'${code}'`))).toEqual(
    [],
  );
});

test('anything thrown becomes an error of the catalogue', () => {
  expect(toHostError(new TensorError('t'))).toMatchObject({ code: 'bad-tensor', status: 400, message: 't' });
  expect(toHostError(new CpuError('cancelled', 'c'))).toMatchObject({ code: 'client-gone', status: 499 });
  expect(toHostError(new CpuError('stopping', 's'))).toMatchObject({ code: 'draining', status: 503, retryAfterS: 5 });
  expect(toHostError(new CpuError('handler-input', 'h', 422))).toMatchObject({ code: 'handler-input', status: 422 });
  expect(toHostError(Object.assign(new Error('full'), { code: 'ENOSPC' }))).toMatchObject({
    code: 'disk-full',
    status: 507,
  });
  const told = new HostError('queue-full', 'q');
  expect(toHostError(told)).toBe(told);
  for (const odd of [new Error('secret'), 'text', undefined, null, 3]) {
    const error = toHostError(odd);
    expect(error).toMatchObject({ code: 'internal', status: 500 });
    expect(error.message).not.toContain('secret');
  }
});

describe('what the machine has too little of is 503 with a time to come back, whatever failed of it', () => {
  const causes = [
    'it could not be started: spawn /usr/bin/node EAGAIN',
    'open EMFILE: too many open files, open model.onnx',
    'ENOMEM: not enough memory, read',
    "ENOSPC: no space left on device, write '/data/x'",
    'pthread_create failed, error code: 11 error msg: Resource temporarily unavailable',
    'the kernel ended it for lack of memory',
    '90 of the 100 processes and threads are there that the control group allows (raise pids.max)',
    'there is no room for it in the memory that all functions share (cpu.memory)',
  ];
  const codes = ['instance-died', 'model-load-failed', 'inference-failed'] as const;
  test.each(causes)('%s', (cause) => {
    for (const code of codes) {
      const error = toHostError(new CpuError(code, `the model of f@1 could not be loaded: ${cause}`));
      expect(error).toMatchObject({ code: 'machine-short', status: 503, retryAfterS: 10 });
      expect(error.message).toContain(cause);
      expect(outcomeOf(error, 1, 100)).toBe('shed');
    }
    // What a handler says is the handler's.
    expect(toHostError(new CpuError('handler-failed', cause))).toMatchObject({ status: 500 });
  });

  test.each(['it exited with code 3', 'it was ended by SIGSEGV', 'axis 7 is out of range', 'a node named EAGAINST'])(
    'but not: %s',
    (cause) => {
      for (const code of codes) expect(toHostError(new CpuError(code, cause))).toMatchObject({ code, status: 500 });
    },
  );

  test.each(['EAGAIN', 'ENOMEM', 'EMFILE', 'ENFILE'])('%s of the operating system', (code) => {
    const error = toHostError(Object.assign(new Error('failed'), { code }));
    expect(error.status).toBe(503);
    expect(error.retryAfterS).toBeGreaterThan(0);
  });
});
