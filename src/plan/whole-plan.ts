/** The name of the plan that has everything on the GPU, among a function's plans. */
export const wholePlan = 'gpu';
