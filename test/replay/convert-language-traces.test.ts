import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, test } from 'vitest';
import { openForeign } from '../../scripts/convert-trace/open.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-llm-'));
afterAll(() => rmSync(folder, { recursive: true }));

const fileOf = (name: string, lines: readonly string[]): string => {
  const file = join(folder, name);
  const text = `${lines.join('\n')}\n`;
  writeFileSync(file, name.endsWith('.gz') ? gzipSync(text) : text);
  return file;
};

const azureHeader = 'TIMESTAMP,ContextTokens,GeneratedTokens';
const burstHeader = 'Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type';

describe("a trace of Azure's language models", () => {
  test("a trace of Azure's language models of 2023 begins with its earliest call, to a tenth of a microsecond, as one function of the file's name", async () => {
    const trace = await openForeign(
      fileOf('AzureLLMInferenceTrace_code.csv', [
        azureHeader,
        '2023-11-16 18:15:47.0000000,3180,8',
        '2023-11-16 18:15:46.6805900,4808,10',
      ]),
    );
    expect(trace).toMatchObject({ format: 'azure-llm', functionNames: ['AzureLLMInferenceTrace_code'] });
    const [first, second] = [...trace.invocations()];
    expect(first).toMatchObject({ arrivalMs: 0, functionIndex: 0 });
    expect(second!.arrivalMs).toBeCloseTo(319.41, 3);
  });

  test("a trace of Azure's language models of 2024 has instants with a zone, and may be packed", async () => {
    const trace = await openForeign(
      fileOf('conv_1week.csv.gz', [
        azureHeader,
        '2024-05-10 00:00:00.009930+00:00,2162,5',
        '2024-05-10 02:00:01+02:00,2399,6',
      ]),
    );
    expect(trace.functionNames).toEqual(['conv_1week']);
    expect([...trace.invocations()][1]!.arrivalMs).toBeCloseTo(990.07, 2);
  });

  test("a trace of Azure's language models is assigned to the wanted number of functions, the same ones for a seed", async () => {
    const rows = Array.from(
      { length: 400 },
      (_, index) => `2024-05-10 00:00:${String(index % 60).padStart(2, '0')}+00:00,9,1`,
    );
    const file = fileOf('dealt.csv', [azureHeader, ...rows]);
    const calls = async (seed: number): Promise<number[]> =>
      [...(await openForeign(file, { functions: 4, seed })).invocations()].map(({ functionIndex }) => functionIndex);
    const dealt = await calls(1);
    for (const index of [0, 1, 2, 3]) {
      const share = dealt.filter((each) => each === index).length / 400;
      expect(share).toBeGreaterThan(0.15);
      expect(share).toBeLessThan(0.35);
    }
    expect(await calls(1)).toEqual(dealt);
    expect(await calls(2)).not.toEqual(dealt);
  });

  test.each([
    ['16.11.2023 18:15,1,2', "line 2, TIMESTAMP: '16.11.2023 18:15' is not an instant such as"],
    ['2023-13-16 18:15:46,1,2', "line 2, TIMESTAMP: '2023-13-16 18:15:46' is not an instant"],
    ['2023-11-16 18:15:46,many,2', "line 2, ContextTokens: 'many' is not a number of tokens"],
    ['2023-11-16 18:15:46,1,', "line 2, GeneratedTokens: '' is not a number of tokens"],
    ['2023-11-16 18:15:46,1', 'line 2: the row has 2 fields instead of 3'],
  ])("a trace of Azure's language models with the row %s is refused", async (row, message) => {
    const file = fileOf('bad.csv', [azureHeader, row]);
    await expect(openForeign(file)).rejects.toThrow(`${file}, ${message}`);
  });
});

describe('a trace of Mooncake', () => {
  const lines = [
    '{"timestamp": 1712000027482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}',
    '{"timestamp": 1712000027000, "input_length": 6472, "output_length": 26, "hash_ids": [46, 75]}',
  ];

  test("a trace of Mooncake begins with its earliest call, as one function of the file's name, and may be packed", async () => {
    for (const name of ['conversation_trace.jsonl', 'conversation_trace.jsonl.gz']) {
      const trace = await openForeign(fileOf(name, lines));
      expect(trace).toMatchObject({ format: 'mooncake', functionNames: ['conversation_trace'] });
      expect([...trace.invocations()].map(({ arrivalMs }) => arrivalMs)).toEqual([0, 482]);
    }
  });

  test.each([
    [
      '{"timestamp": "soon", "input_length": 1, "output_length": 2}',
      `line 3, timestamp: '"soon"' is not a number of milliseconds`,
    ],
    ['{"timestamp": 1, "input_length": 1}', 'line 3, output_length: nothing is not a number of tokens'],
    [
      '{"timestamp": 1, "input_length": -1, "output_length": 2}',
      "line 3, input_length: '-1' is not a number of tokens",
    ],
    ['{"timestamp": 1, "inp', `line 3: '{"timestamp": 1, "inp' is not JSON`],
    ['null', 'line 3, timestamp: nothing is not a number of milliseconds'],
  ])('a trace of Mooncake with the line %s is refused', async (line, message) => {
    const file = fileOf('bad.jsonl', [...lines, line]);
    await expect(openForeign(file)).rejects.toThrow(`${file}, ${message}`);
  });
});

test('traces of language models warn that tokens are ignored, and how many a call generates', async () => {
  const files = [
    ['a.csv', azureHeader, '2024-05-10 00:00:00+00:00,9,100', '1715299201.5,9,2000'],
    ['b.csv', burstHeader, '5,ChatGPT,472,100,572,API log', '9,GPT-4,1,2000,2001,API log'],
    ['m.jsonl', ...[100, 2000].map((tokens) => `{"timestamp": 1, "input_length": 9, "output_length": ${tokens}}`)],
  ];
  for (const [name = '', ...lines] of files) {
    expect((await openForeign(fileOf(name, lines))).warnings).toEqual([
      'tokens are ignored: each call is one run of its model here. The calls of this trace generate 1,050 tokens on ' +
        'average and 2,000 at most, and a language model takes a run for each.',
    ]);
  }
});

describe('a trace of BurstGPT', () => {
  test('a trace of BurstGPT has a function for each model and kind of log, failed calls included', async () => {
    const trace = await openForeign(
      fileOf('burst.csv', [
        burstHeader,
        '5,ChatGPT,472,18,490,Conversation log',
        '45,ChatGPT,1087,0,1087,API log',
        '118,GPT-4,417,276,693,Conversation log',
        '118.5,ChatGPT,10,5,15,Conversation log',
      ]),
    );
    expect(trace.format).toBe('burst-gpt');
    expect(trace.functionNames).toEqual(['ChatGPT, Conversation log', 'ChatGPT, API log', 'GPT-4, Conversation log']);
    expect([...trace.invocations()]).toEqual([
      { arrivalMs: 0, functionIndex: 0 },
      { arrivalMs: 40_000, functionIndex: 1 },
      { arrivalMs: 113_000, functionIndex: 2 },
      { arrivalMs: 113_500, functionIndex: 0 },
    ]);
  });

  test('a trace of BurstGPT may have the columns of later releases between', async () => {
    const header = 'Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type';
    const trace = await openForeign(fileOf('later.csv', [header, '1,s1,2.5,GPT-4,3,4,7,API log']));
    expect(trace.functionNames).toEqual(['GPT-4, API log']);
  });

  test.each([
    ['soon,GPT-4,1,2,3,API log', "line 2, Timestamp: 'soon' is not a number of seconds"],
    ['1,,1,2,3,API log', 'line 2, Model: the name of the model is empty'],
    ['1,GPT-4,-1,2,3,API log', "line 2, Request tokens: '-1' is not a number of tokens"],
    ['1,GPT-4,1,2', 'line 2: the row has 4 fields instead of 6'],
  ])('a trace of BurstGPT with the row %s is refused', async (row, message) => {
    const file = fileOf('bad-burst.csv', [burstHeader, row]);
    await expect(openForeign(file)).rejects.toThrow(`${file}, ${message}`);
  });
});
