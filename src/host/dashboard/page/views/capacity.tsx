import type { CapacityReport } from '../logic/reports.ts';
import { formatMs, formatShare } from '../logic/format.ts';
import { Table } from './parts.tsx';

interface CapacityProps {
  readonly name: string;
  readonly report: CapacityReport;
  readonly onClose: () => void;
}

/** The answer to "how many GPUs": a sentence for each machine, and the replays behind it. */
export function Capacity({ name, report, onClose }: CapacityProps) {
  return (
    <section class="card" aria-labelledby="capacity-title">
      <h2 id="capacity-title">
        Capacity: {name} <span class="muted">simulated</span>{' '}
        <button type="button" aria-label={`Close ${name}`} onClick={onClose}>
          ×
        </button>
      </h2>
      {report.answers.map(({ machine, text }) => (
        <p key={machine}>{text}</p>
      ))}
      <div class="scroll">
        <Table headings={['Machine', 'GPUs', 'Hosts', 'Cores of each', 'Goodput', 'p99', 'Cold', '']}>
          {report.answers.flatMap(({ machine, enough, runs }) =>
            runs.map(({ gpus, hosts, cores, goodput, p99_ms: p99, cold_start_rate: cold }) => (
              <tr key={`${machine} ${hosts} ${gpus} ${cores}`}>
                <th scope="row">{machine}</th>
                <td>{gpus}</td>
                <td>{hosts}</td>
                <td>{cores}</td>
                <td>
                  <meter min={0} max={1} low={report.goodput} optimum={1} value={goodput ?? 0} /> {formatShare(goodput)}
                </td>
                <td>{formatMs(p99)}</td>
                <td>{formatShare(cold)}</td>
                <td>
                  {enough?.gpus === gpus && enough.hosts === hosts && enough.cores === cores ? (
                    <strong>enough</strong>
                  ) : (
                    ''
                  )}
                </td>
              </tr>
            )),
          )}
        </Table>
      </div>
    </section>
  );
}
