import { useMemo, useState } from 'preact/hooks';
import type { FunctionAnswer } from '../../api-types.ts';
import { request } from '../api.ts';
import { curlOf, zerosFor } from '../logic/curl.ts';
import { formatMs } from '../logic/format.ts';
import { useAction } from '../state.ts';
import { CopyButton, Message } from './parts.tsx';

interface Tried {
  readonly curl: string;
  readonly tookMs: number;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
  readonly image: string | undefined;
}

/** Reply headers that say where the call went and how long it took. */
const telling = /^(x-turntable|x-model|x-compute|x-queue|x-inference|x-total|x-duration|x-call|content-type)/;
const shownMax = 20_000;

/** Calls the function with the body that the user typed or chose, and shows the answer as it came. */
export function TryIt({ answer }: { readonly answer: FunctionAnswer }) {
  const { row, handler, example, inputs } = answer;
  const zeros = useMemo(() => (handler ? undefined : zerosFor(inputs)), [row.version]);
  const isLong = zeros?.isLong === true;
  const start = handler ? (example === null || example.startsWith('@') ? '' : example) : isLong ? '' : zeros?.text;
  const [body, setBody] = useState(start ?? '');
  const [file, setFile] = useState<File | undefined>(undefined);
  const [tried, setTried] = useState<Tried | undefined>(undefined);
  const { said, busy, run } = useAction();

  const call = async (): Promise<undefined> => {
    const path = `/function/${encodeURIComponent(row.name)}`;
    const json = !handler;
    const areZeros = isLong && body === '';
    const sent = areZeros ? zeros.text : body;
    const startMs = performance.now();
    const response = await request(path, {
      method: 'POST',
      body: file ?? sent,
      headers: json ? { 'Content-Type': 'application/json' } : {},
    });
    const blob = await response.blob();
    const isImage = blob.type.startsWith('image/');
    setTried({
      curl: curlOf({
        url: `${location.origin}${path}`,
        body: file !== undefined ? `@${file.name}` : areZeros ? '@input.json' : body,
        json,
      }),
      tookMs: performance.now() - startMs,
      headers: [...response.headers].filter(([name]) => telling.test(name)),
      body: isImage ? '' : (await blob.text()).slice(0, shownMax),
      image: isImage ? URL.createObjectURL(blob) : undefined,
    });
  };

  return (
    <section class="card" aria-labelledby="try-title">
      <h2 id="try-title">Try it</h2>
      <p class="muted">
        {handler
          ? 'The body goes to the function’s handler.'
          : 'Inputs: ' +
            inputs.map(({ name, datatype, shape }) => `${name} ${datatype} [${shape.join(', ')}]`).join('; ')}
      </p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void run(call);
        }}
      >
        <textarea
          aria-label="Body of the request"
          rows={5}
          value={body}
          disabled={file !== undefined}
          spellcheck={false}
          placeholder={isLong ? 'Zeros in these shapes, unless another body is written here' : ''}
          onInput={(event) => setBody(event.currentTarget.value)}
        />
        <div class="controls">
          <button type="submit" class="primary" disabled={busy}>
            {busy ? 'Calling…' : 'Call'}
          </button>
          <label>
            or a file <input type="file" onChange={(event) => setFile(event.currentTarget.files?.[0])} />
          </label>
        </div>
      </form>
      {said !== undefined && <Message {...said} />}
      {tried !== undefined && said === undefined && <Answer {...tried} />}
    </section>
  );
}

function Answer({ tookMs, image, body, headers, curl }: Tried) {
  return (
    <div class="answer">
      <p>
        Answered in <strong>{formatMs(tookMs)}</strong>, as this browser saw it
      </p>
      {image === undefined ? <pre id="try-answer">{body}</pre> : <img src={image} alt="The function’s answer" />}
      <table>
        <tbody>
          {headers.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <pre>{curl}</pre>
      <CopyButton text={curl} />
    </div>
  );
}
