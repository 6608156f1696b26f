import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { HostError } from '../errors.ts';
import { readForm } from './multipart.ts';

const contentType = 'multipart/form-data; boundary=b';
const start = (name: string): string =>
  `--b\r\nContent-Disposition: form-data; name="${name}"; filename="${name}.bin"\r\n\r\n`;

async function* chunks(...texts: (string | Error)[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) {
    await setImmediate();
    if (text instanceof Error) throw text;
    yield Buffer.from(text);
  }
}

/** A target that opens its file before it looks at the stream, as a disk does. */
function slowTarget(): { readonly open: Set<string>; readonly settings: Map<string, unknown>; target: Target } {
  const open = new Set<string>();
  const settings = new Map<string, unknown>();
  return {
    open,
    settings,
    target: {
      async writeFile(name, stream) {
        open.add(name);
        try {
          for (let turns = 0; turns < 3; turns++) await setImmediate();
          for await (const chunk of stream) if (chunk.byteLength === 0) break;
        } finally {
          open.delete(name);
        }
      },
      set: (key, value) => void settings.set(key, value),
    },
  };
}
type Target = Parameters<typeof readForm>[2];

test('a form that ends inside a file is refused, even if that file has no reader yet', async () => {
  const { target, open } = slowTarget();
  const failure = await readForm(contentType, chunks(`${start('model')}abc`), target).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: 'bad-request', message: expect.stringContaining('multipart/form-data') });
  expect(open.size).toBe(0);
});

test('a client that leaves inside a file leaves no file open', async () => {
  const { target, open } = slowTarget();
  const gone = new HostError('client-gone', 'the client is gone');
  const body = chunks(`${start('model')}abc`, 'def', 'ghi', 'jkl', gone);
  await expect(readForm(contentType, body, target)).rejects.toBe(gone);
  expect(open.size).toBe(0);
});

test('a setting that is refused behind a file leaves no file open', async () => {
  const { target, open } = slowTarget();
  const refusal = new HostError('bad-settings', 'no');
  const body = chunks(
    `--b\r\nContent-Disposition: form-data; name="slo"\r\n\r\n1s\r\n${start('model')}abc`,
    'def'.repeat(100_000),
    'ghi'.repeat(100_000),
  );
  const refusing: Target = {
    ...target,
    set() {
      throw refusal;
    },
  };
  await expect(readForm(contentType, body, refusing)).rejects.toBe(refusal);
  expect(open.size).toBe(0);
});

test('files and settings arrive in their order', async () => {
  const { target, settings } = slowTarget();
  const form = `${start('model')}abc\r\n--b\r\nContent-Disposition: form-data; name="slo"\r\n\r\n1s\r\n--b--\r\n`;
  await readForm(contentType, chunks(form.slice(0, 60), form.slice(60)), target);
  expect([...settings]).toEqual([['slo', '1s']]);
});
