import type { Obstacle } from './types.ts';

export type ProgramErrorCode =
  /** Operators or shapes of the model are not covered; `obstacles` has all of them. */
  | 'unsupported'
  /** The shapes given do not fit the model's inputs. */
  | 'bad-shapes'
  /** ONNX Runtime refused the graph, or died of it. */
  | 'folding'
  /** A serialised program is damaged, or of another version. */
  | 'bad-program';

/** A model that cannot be made a program. */
export class ProgramError extends Error {
  override readonly name = 'ProgramError';
  readonly code: ProgramErrorCode;
  readonly obstacles: readonly Obstacle[];
  constructor(code: ProgramErrorCode, message: string, obstacles: readonly Obstacle[] = []) {
    super(message);
    this.code = code;
    this.obstacles = obstacles;
  }
}

/** One sentence for all obstacles: the first three by name, and how many more. */
export function unsupported(obstacles: readonly Obstacle[]): ProgramError {
  const named = obstacles
    .slice(0, 3)
    .map(({ node, operator, reason }) => `${operator} '${node}': ${reason}`)
    .join('; ');
  const more = obstacles.length > 3 ? `; and ${obstacles.length - 3} more` : '';
  return new ProgramError('unsupported', `the GPU engine cannot run this model: ${named}${more}`, obstacles);
}
