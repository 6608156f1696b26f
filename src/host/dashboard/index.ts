/** The answers of the dashboard's API. */
export { anatomyAnswer, anatomyChoices } from './ask-anatomy.ts';
export {
  errorsAnswer,
  functionAnswer,
  functionsAnswer,
  eventAnswer,
  historyAnswer,
  memoryAnswer,
  recordedAnatomy,
  recordedColdStarts,
  tickOf,
  waitingCount,
  type RecordedColdStart,
  type ViewSources,
} from './views.ts';
export { plannedColdStart } from './cold-start-timeline.ts';
export { machineAnswer, usageNow } from './machine.ts';
export { eventText } from './event-text.ts';
export { troubleAnswer, troubleOf } from './trouble.ts';
export type * from './api-types.ts';
