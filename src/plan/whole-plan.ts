/** Among a function's plans, the name of the plan with everything on the GPU. */
export const wholePlan = 'gpu';
