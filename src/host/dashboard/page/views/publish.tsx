import { useState } from 'preact/hooks';
import { request } from '../api.ts';
import { textOf } from '../logic/form.ts';
import { functionLink } from '../logic/route.ts';
import { Field, Message, TextField } from './parts.tsx';

/** Publishes a new function or a new version: the model's file, its external data, and its settings. */
export function Publish({ name: given }: { readonly name: string }) {
  const [said, setSaid] = useState<{ text: string; level: 'info' | 'warning' } | undefined>(undefined);
  const [busy, setBusy] = useState(false);

  const publish = async (form: HTMLFormElement): Promise<void> => {
    const fields = new FormData(form);
    const text = (name: string): string => textOf(fields, name);
    const name = text('name');
    const files = fields.getAll('files').filter((file): file is File => file instanceof File && file.size > 0);
    const body = new FormData();
    const models = files.filter((file) => file.name.endsWith('.onnx'));
    if (name === '' || models.length !== 1) {
      setSaid({
        text: 'A name and exactly one .onnx file are needed; external data goes beside it.',
        level: 'warning',
      });
      return;
    }
    for (const file of files)
      body.append(file === models[0] ? 'model.onnx' : file.name, file, file === models[0] ? 'model.onnx' : file.name);
    for (const setting of ['version', 'slo', 'description', 'priority']) {
      if (text(setting) !== '') body.append(setting, text(setting));
    }
    if (fields.get('pinned') !== null) body.append('pinned', 'true');
    setBusy(true);
    setSaid({ text: 'Uploading and checking the model…', level: 'info' });
    try {
      await request(`/functions/${encodeURIComponent(name)}`, { method: 'PUT', body });
      location.hash = functionLink(name);
    } catch (error) {
      setSaid({ text: (error as Error).message, level: 'warning' });
    } finally {
      setBusy(false);
    }
  };

  return (
    <section aria-labelledby="publish-title">
      <h1 id="publish-title">Publish a model</h1>
      <form
        class="card form"
        onSubmit={(event) => {
          event.preventDefault();
          void publish(event.currentTarget);
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
