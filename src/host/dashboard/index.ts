/** What the dashboard's API answers. */
export { anatomyAnswer, anatomyChoices } from './ask-anatomy.ts';
export {
  functionAnswer,
  functionsAnswer,
  happeningAnswer,
  historyAnswer,
  memoryAnswer,
  tickOf,
  type GpuPresence,
  type ViewSources,
} from './views.ts';
export type * from './api-types.ts';
