import { request } from '../api.ts';
import { textOf } from '../logic/form.ts';
import { functionLink } from '../logic/route.ts';
import { useAction } from '../state.ts';
import { Field, Message, TextField } from './parts.tsx';

/** Publishes a new function or a new version: the model's file, its external data, and its settings. */
export function Publish({ name: given }: { readonly name: string }) {
  const { said, busy, run } = useAction();

  return (
    <section aria-labelledby="publish-title">
      <h1 id="publish-title">Publish a model</h1>
      <form
        class="card form"
        onSubmit={(event) => {
          event.preventDefault();
          const form = event.currentTarget;
          void run(() => publish(form), 'Uploading and checking the model…');
        }}
      >
        <TextField label="Name" name="name" required defaultValue={given} placeholder="resnet50" />
        <Field label="Model (.onnx), and its external data where it has some">
          <input name="files" type="file" multiple required />
        </Field>
        <TextField label="SLO" name="slo" placeholder="100ms" />
        <TextField label="Version (the next number where it is left out)" name="version" />
        <TextField label="Description" name="description" />
        <TextField label="Priority (1 is the highest)" name="priority" inputMode="numeric" />
        <label class="check">
          <input name="pinned" type="checkbox" /> Pinned: loaded when the host starts, and never evicted
        </label>
        <button type="submit" class="primary" disabled={busy}>
          Publish
        </button>
        {said !== undefined && <Message {...said} />}
      </form>
    </section>
  );
}

async function publish(form: HTMLFormElement): Promise<undefined> {
  const fields = new FormData(form);
  const text = (name: string): string => textOf(fields, name);
  const name = text('name');
  const files = fields.getAll('files').filter((file): file is File => file instanceof File && file.size > 0);
  const models = files.filter((file) => file.name.endsWith('.onnx'));
  if (name === '' || models.length !== 1) {
    throw new Error('A name and exactly one .onnx file are needed; external data goes beside it.');
  }
  const body = new FormData();
  for (const file of files)
    body.append(file === models[0] ? 'model.onnx' : file.name, file, file === models[0] ? 'model.onnx' : file.name);
  for (const setting of ['version', 'slo', 'description', 'priority']) {
    if (text(setting) !== '') body.append(setting, text(setting));
  }
  if (fields.get('pinned') !== null) body.append('pinned', 'true');
  await request(`/functions/${encodeURIComponent(name)}`, { method: 'PUT', body });
  location.hash = functionLink(name);
}
