/** A host in a control group without processes to spare. */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sumGraph } from '../../bench/chaos/models.ts';
import { Servers } from '../../bench/servers.ts';

const root = '/sys/fs/cgroup';

function makeGroup(): string | undefined {
  const parent = existsSync(join(root, 'cgroup.controllers')) ? root : join(root, 'pids');
  const folder = join(parent, `turntable-test-${process.pid}`);
  try {
    mkdirSync(folder);
    if (existsSync(join(folder, 'pids.max'))) return folder;
    rmdirSync(folder);
  } catch {
    // This user may make none.
  }
  return undefined;
}

test('a call whose process finds no room for its threads is told the limit, and served once that is lifted', async ({
  skip,
}) => {
  const group = makeGroup();
  if (group === undefined) return skip('no control group can be made here');
  try {
    await using servers = await Servers.create();
    await servers.addFunction('sum', sumGraph(1), { slo: '60s' });
    const flags = ['--gpu-use', 'off', '--cpu-blank-instances', '0'];
    const enter = ['sh', '-c', `echo $$ > '${join(group, 'cgroup.procs')}' && exec "$0" "$@"`];
    const { url } = await servers.startHost(flags, {}, enter);
    // Probes of the start may be about to end: what they leave would be room.
    let used = 0;
    let alike = 0;
    await expect
      .poll(() => {
        const now = Number(readFileSync(join(group, 'pids.current'), 'utf8'));
        alike = now === used ? alike + 1 : 0;
        used = now;
        return alike;
      })
      .toBeGreaterThan(20);
    const call = (): Promise<Response> => fetch(`${url}/function/sum`, { method: 'POST', body: '{"input":[[1]]}' });

    writeFileSync(join(group, 'pids.max'), String(used + 3));
    const refused = await call();
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, expect.stringMatching(/^\d+$/)]);
    const { error } = (await refused.json()) as { error: string };
    // It stood still, or was not begun at all.
    expect(error).toMatch(/ the control group allows \(raise pids\.max\)$/);

    writeFileSync(join(group, 'pids.max'), 'max');
    await expect.poll(async () => (await call()).status).toBe(200);
  } finally {
    // Its last processes may still be ending.
    await expect.poll(() => rmdirSync(group)).toBeUndefined();
  }
});
