import type { Obstacle } from './types.ts';

export type ProgramErrorCode =
  /** The engine lacks operators or shapes of the model; `obstacles` has all of them. */
  | 'unsupported'
  /** The given shapes do not fit the model's inputs. */
  | 'bad-shapes'
  /** ONNX Runtime refused the graph or crashed. */
  | 'folding';

/** Why a model has no program. */
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

/** The message names the first three obstacles and counts the others. */
export function unsupported(obstacles: readonly Obstacle[]): ProgramError {
  const named = obstacles
    .slice(0, 3)
    .map(({ node, operator, reason }) => `${operator} '${node}': ${reason}`)
    .join('; ');
  const more = obstacles.length > 3 ? `; and ${obstacles.length - 3} more` : '';
  return new ProgramError('unsupported', `the GPU engine cannot run this model: ${named}${more}`, obstacles);
}
