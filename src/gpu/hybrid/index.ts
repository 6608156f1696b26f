/**
 * Plans over a GPU and CPU cores: the one door. What runs is imported with the first function that may have such a
 * plan; types may be imported anywhere.
 */
export { compileHybrid, type HybridProgram } from './compile.ts';
export { HybridFunctions, type DraftOrder, type HybridSpec } from './functions.ts';
export { draftOperators, type OperatorDraft } from './operator-draft.ts';
export { profileOperatorsOnCpu, type ProfileOnCpuOptions } from './operators-on-cpu.ts';
export { hybridGraph } from './prepare.ts';
export type { HybridPlan, HybridPromise, HybridSegment, MeasureOperatorsOptions } from './types.ts';
