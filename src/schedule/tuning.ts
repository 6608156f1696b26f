/**
 * Every number of the scheduler that was chosen by hand and not measured or given, and what it means. How much the scenes
 * of `bench -- hours` lose with another value was measured only where it is said.
 */
export const tuning = {
  /** Which GPU an invocation goes to; routing.ts. */
  routing: {
    /**
     * How many GPUs are weighed for a function beside those that have some of it, as long as one of them is in time: some
     * by the function's number, so that functions spread, and the least busy ones.
     */
    candidatesMax: 8,
    leastBusy: 3,
    /** Weight of a millisecond behind the SLO, relative to one before it. */
    lateShare: 0.05,
    /**
     * Share of the policy's bound on waiting. Beyond it lateness counts in full, or else late calls would all gather on
     * one GPU.
     */
    patientShare: 0.2,
  },
  /** What missing layers cost; miss-cost.ts. */
  missCost: {
    /** Weight of the old value when a new observation comes: half a weight after 34 loads. */
    kept: 0.98,
    /**
     * The same for starts that need borrowed links to be in time: a machine has to stay with trimming, or with dropping
     * whole functions. In time of the scene mixed-slo: 98.4% with 0.98, 99.1 with 0.99, 99.2 with 0.995, 99.3 with
     * 0.9975; shedding 98.8, 98.5, 98.1, 98.7; of short-slo-300 and few-hot within 0.5 points with all four.
     */
    helpedKept: 0.995,
    /** What a missed SLO costs, as a multiple of the mean SLO. */
    missFactor: 4,
    /** A longer SLO counts as this in the mean, which is of about so many calls. */
    sloMsMax: 10_000,
    calls: 10_000,
    /** Share of the delay of other loads that their callers notice. */
    shownShare: 0.25,
    /** Cap of one run's ratio to its expected time, and of the learnt mean; and the weight of one run in it. */
    ratioMax: 2,
    learning: 0.01,
    /** How much one load, late or in time, moves the estimate of the links' load (1: what they can carry). */
    loadStep: 0.05,
    /** Where that estimate begins, and its limits. */
    loadAtFirst: 0.3,
    loadMin: 0.05,
    loadMax: 8,
  },
  /** PCIe links; links.ts. */
  links: {
    /** The window over which a link's utilization is smoothed. */
    smoothingMs: 1000,
    /** A neighbour counts as busy by this share of how busy it was of late, soon after it was idle. */
    againShare: 0.5,
    /** Share of a link's speed: where a switch has less left, beginning another load is pointless. */
    leastLeft: 0.05,
    /** Above this utilization the price, u / (1 - u), would say no more than 'full'. */
    busyMax: 0.95,
  },
  /**
   * Host memory and the disk; host-memory.ts. In ten scenes of the rows with a disk (81.3% in time, in the mean of three
   * seeds) half and twice of each lose at most 0.3 points in the mean, and 1.8 in one of them.
   */
  hostMemory: {
    /** Functions that have room while they are read, or next: a place that is told of the next read late would let its disk wait with one. */
    readAhead: 2,
    /** The share of a use that a call counts which will be late though its function is read next. */
    lateShare: 0.05,
    /**
     * At how many of the functions that wait for a read a call looks at the most, however many there are. With 8 and with
     * 32 six rows with a disk are in time as often, within 0.1 points.
     */
    looksMax: 16,
    /** How long a check waits for room before an idle disk reads its function whatever goes for it. No replay has checks, so no row changes with it. */
    heldMs: 1000,
  },
  /** The queues of all places; late-turns.ts, side-line.ts. */
  queues: {
    /** One in so many starts goes to the call that waits longest, while any waits beyond the policy's bound. */
    overdueShare: 16,
    /**
     * How far behind the others a function can fall by its own demand. More than most SLOs, so that its surplus does not
     * make others late; not so much that it waits long once its demand drops.
     */
    shareBoundMs: 2000,
    /**
     * The time that a call has left when it joins the CPU's or the workers' queue is at least so many steps of deadlines.
     * Chosen by hand: all rows of the benchmark hours are equal with it and without steps, and in one-process a quiet call
     * waits 1.6 ms beside a flood, 7.3 without steps. No other number was tried.
     */
    deadlineSteps: 8,
  },
  /** The CPU and the workers; sides.ts, cpu-lanes.ts. */
  sides: {
    /** The share of runs, and of waits, that should end within their allowed time. */
    onTimeShare: 0.999,
    /** The most of an invocation's spare time that is kept as a margin for wrong predictions. */
    spareShareMax: 0.5,
    /** Runs that are handed to a core ahead, at most. */
    aheadMax: 16,
    /**
     * After a call that is late everywhere, how many other functions have their sessions made ahead on idle cores. In
     * time of the scene overflow-sessions, five seeds: 98.9% with 16, 99.2 with 32, 99.2 with 64.
     */
    aheadSessions: 32,
    /** That happens while at most this share of the cores is taken. */
    aheadShare: 0.5,
    /** Limit of runs that share cores, for each core: so many functions may hang without delaying the others. */
    sharingMax: 16,
  },
  /** How often functions are called, and how far predictions are off; learnt.ts. */
  learnt: {
    /** After this many arrivals per function, a use counts half. */
    halfLifePerFunction: 8,
    /** Weight of a new observation in the scale by which the steps of a margin go. */
    newest: 0.1,
  },
  /** Calls that share a run; joining.ts. */
  joining: {
    /**
     * A joined run that takes a larger share of the time of its calls one by one is not worth it: they all end at its
     * end, and one by one the first of them would end sooner.
     */
    worthShare: 0.75,
    /** Waiting invocations to look at for each row that a run has room for: a line with other keys can be long. */
    looksPerRow: 4,
  },
  /** Functions that shedding would keep away from GPUs; bringing.ts. */
  bringing: {
    /** The longest pause between two late calls that brought nothing, in cold starts. */
    pauseMax: 1024,
    /** How many calls of a function are refused before one is let through, where its start on an idle link is in time. */
    refusedMax: 2,
  },
  /** Plan variants; plan-variants.ts. */
  variants: {
    /** Upper limit of the runs that a shrunken function waits before it may grow. */
    patienceMax: 1024,
  },
} as const;
