/**
 * Plans over a GPU and CPU cores. Import this module only when the first function may have such a plan; importing its
 * types is free.
 */
export { compileHybrid, type HybridProgram } from './compile.ts';
export { HybridFunctions, type DraftOrder, type HybridSpec } from './functions.ts';
export { draftOperators, type OperatorDraft } from './operator-draft.ts';
export { profileOperatorsOnCpu } from './operator-profile.ts';
export { hybridGraph } from './prepare.ts';
export type { HybridPlan, HybridPromise, HybridSegment, MeasureOperatorsOptions } from './types.ts';
