/**
 * The timeline of a plan: when each layer is issued, copied, migrated over NVLink and executed. Each stage has two
 * clocks: the CPU issues copies ahead of the links that carry them, and launches kernels ahead of the GPU that runs
 * them. A layer executes as soon as its own weights are there (paper, section 4.3.4), whatever the state of the others.
 *
 * A layer with `cost` (an estimate) is simulated tensor by tensor. One without (a measured profile) takes its `load` on
 * the link, which includes issuing, and its `exec` or `dha` on the GPU; its reads of host memory do not slow down
 * copies, since the profile does not say how many there are. A coded layer is decoded once it is there, one layer after
 * the other, beside what executes. For such a profile the timeline equals the authors'.
 */
import type { Machine } from '../../hardware/index.ts';
import { linkBytes, type LayerProfile, type ProfileLayer } from '../../profile/index.ts';
import { LinkClock, type Span } from './link-clock.ts';
import { linkSpeeds, type LinkSpeed } from './transmission.ts';
import type { ColdStartPlan, LayerTimes, Timeline } from './types.ts';

export interface TimelineOptions {
  /** For each layer, whether its weights are on the GPU already. */
  readonly resident?: (layer: number) => boolean;
  /**
   * A second cold start of the same plan on the first secondary GPU, at the same time (paper, Table 4, column 3): each
   * link carries its own partition first and then the other's.
   */
  readonly twin?: boolean;
}

interface Link {
  readonly speed: LinkSpeed;
  readonly clock: LinkClock;
  readonly nvlink: LinkClock;
  /** When the CPU thread of this link has issued its copies so far. */
  issuedMs: number;
}

type Arrival = ReturnType<typeof copyLayer> & { readonly decode?: Span };

const readyMsOf = ({ copy, migration, decode }: Arrival): number => (decode ?? migration ?? copy).endMs;

/** Simulates a plan on its machine. Pure. */
export function simulate(
  { layers }: Pick<LayerProfile, 'layers'>,
  machine: Machine,
  plan: ColdStartPlan,
  options: TimelineOptions = {},
): Timeline {
  const resident = (index: number): boolean =>
    plan.layers[index]!.method === 'load' && (options.resident?.(index) ?? false);
  const links = openLinks(machine, plan);
  const decoder = new LinkClock();
  if (options.twin === true) occupyByTwin(layers, machine, plan, links);
  const arrivals: (Arrival | undefined)[] = [];
  const arrival = (index: number): Arrival | undefined => {
    const { link } = plan.layers[index]!;
    if (link === null || resident(index)) return undefined;
    const layer = layers[index]!;
    const copied = copyLayer(layer, links.get(link)!, machine);
    if (layer.coded === undefined) return copied;
    return { ...copied, decode: decoder.copy((copied.migration ?? copied.copy).endMs, layer.coded.decode) };
  };
  // The baseline loads the whole model first: it launches nothing before the last copy has arrived.
  let launchedMs = 0;
  if (plan.mode === 'baseline') {
    for (const index of layers.keys()) {
      const arrived = arrival(index);
      arrivals.push(arrived);
      launchedMs = Math.max(launchedMs, arrived === undefined ? 0 : readyMsOf(arrived));
    }
  }
  const coldLaunchMs = plan.mode === 'baseline' ? 0 : (machine.costs?.coldLaunchUs ?? 0) / 1000;
  const primary = links.get(plan.primary)!;
  let busyMs = launchedMs;
  let stallMs = 0;
  const times = layers.map((layer, index): LayerTimes => {
    const { name, method, link } = plan.layers[index]!;
    const arrived = plan.mode === 'baseline' ? arrivals[index] : arrival(index);
    const { cost } = layer;
    /** When the layer could execute if its weights were there. */
    let possibleMs = busyMs;
    if (cost !== undefined) {
      const coldMs = arrived === undefined ? 0 : coldLaunchMs;
      possibleMs = Math.max(busyMs, launchedMs + coldMs + cost.launch);
      // An event must be recorded before a stream can wait for it.
      launchedMs = Math.max(launchedMs, arrived?.issue.endMs ?? 0) + coldMs + cost.launch;
    }
    const readyMs = arrived === undefined ? 0 : readyMsOf(arrived);
    const startMs = Math.max(busyMs, launchedMs, readyMs);
    const fromHost = method === 'dha' && layer.bytes > 0;
    let endMs: number;
    if (cost === undefined) {
      endMs = startMs + (fromHost || layer.bytes === 0 ? layer.dha : layer.exec);
    } else {
      if (fromHost) primary.clock.read(startMs, cost.hostRead);
      endMs = startMs + (fromHost ? cost.gpuDha : cost.gpu);
      if (cost.operators.count > 0) {
        launchedMs += cost.operators.launch;
        endMs = Math.max(endMs + cost.operators.gpu, launchedMs + cost.operators.gpu / cost.operators.count);
      }
    }
    // The baseline has one long wait, before the first layer.
    const waitedMs = plan.mode === 'baseline' && index === 0 ? busyMs : startMs - possibleMs;
    stallMs += waitedMs;
    busyMs = endMs;
    return {
      name,
      method,
      link,
      resident: resident(index),
      fromHost,
      issue: arrived?.issue,
      copy: arrived?.copy,
      migration: arrived?.migration,
      decode: arrived?.decode,
      execution: { startMs, endMs },
      stallMs: waitedMs,
    };
  });
  return { latencyMs: busyMs, stallMs, layers: times };
}

function openLinks(machine: Machine, plan: ColdStartPlan): Map<number, Link> {
  const links = new Map<number, Link>();
  for (const [gpu, speed] of linkSpeeds(machine, plan.primary, plan.secondaries)) {
    links.set(gpu, { speed, clock: new LinkClock(), nvlink: new LinkClock(), issuedMs: 0 });
  }
  return links;
}

/** The copies of one layer over one link, then over NVLink if the link is not the primary's. */
function copyLayer(layer: ProfileLayer, link: Link, machine: Machine) {
  const { speed } = link;
  const issueMs = (machine.costs?.issueUs ?? 0) / 1000;
  const issueStartMs = link.issuedMs;
  let copy: Span | undefined;
  if (layer.cost === undefined) {
    copy = link.clock.copy(0, layer.load * speed.slowdown);
  } else {
    for (const bytes of layer.cost.tensorBytes) {
      link.issuedMs += issueMs;
      const span = link.clock.copy(link.issuedMs, speed.setupMs + bytes * speed.msPerByte);
      copy = { startMs: copy?.startMs ?? span.startMs, endMs: span.endMs };
    }
  }
  const done: Span = copy ?? link.clock.copy(link.issuedMs, 0);
  const { nvlink } = speed;
  return {
    issue: { startMs: issueStartMs, endMs: link.issuedMs },
    copy: done,
    migration:
      nvlink === undefined
        ? undefined
        : link.nvlink.copy(done.endMs, nvlink.setupMs + linkBytes(layer) * nvlink.msPerByte),
  };
}

/** Puts the other cold start's first partition on the first secondary's link, which is its primary link. */
function occupyByTwin(
  layers: readonly ProfileLayer[],
  machine: Machine,
  plan: ColdStartPlan,
  links: ReadonlyMap<number, Link>,
): void {
  const link = links.get(plan.secondaries[0] ?? plan.primary);
  if (link === undefined || link.speed.nvlink === undefined) return;
  for (const [index, layer] of layers.entries()) {
    const { method, link: own } = plan.layers[index]!;
    if (own === plan.primary) copyLayer(layer, link, machine);
    else if (method === 'dha') link.clock.copy(0, layer.cost?.hostRead ?? 0);
  }
}
