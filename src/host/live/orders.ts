/** One run or load that was ordered of the GPU process; the result of an abandoned one is ignored. */
export interface Order {
  readonly kind: 'run' | 'load' | 'grow';
  readonly functionIndex: number;
  readonly gpu: number;
  readonly abort: AbortController;
  /** Called when it has ended. */
  readonly over: (() => void)[];
  abandoned: boolean;
  /** A run whose GPU is free again: only its answer is still to come, and the scheduler does not know it any more. */
  isLaneFree: boolean;
  /** A load whose function has run meanwhile: everything has arrived, although the process has not said so yet. */
  isOutrun: boolean;
}

/** Runs and loads that are in flight. */
export class Orders {
  readonly #orders = new Set<Order>();

  open(kind: Order['kind'], functionIndex: number, gpu: number): Order {
    const abort = new AbortController();
    const order: Order = {
      kind,
      functionIndex,
      gpu,
      abort,
      over: [],
      abandoned: false,
      isLaneFree: false,
      isOutrun: false,
    };
    this.#orders.add(order);
    return order;
  }

  close(order: Order): void {
    this.#orders.delete(order);
    for (const tell of order.over) tell();
  }

  abandon(functionIndex: number, gpu: number): void {
    for (const order of this.#orders) {
      if (order.functionIndex !== functionIndex || order.gpu !== gpu || order.isLaneFree) continue;
      order.abandoned = true;
      order.abort.abort();
    }
  }

  /** A run of the function has ended there. Returns whether one of its loads was still unanswered. */
  outrun(functionIndex: number, gpu: number): boolean {
    for (const order of this.#orders) {
      if (order.kind !== 'load' || order.functionIndex !== functionIndex || order.gpu !== gpu) continue;
      if (order.abandoned || order.isOutrun) continue;
      order.isOutrun = true;
      return true;
    }
    return false;
  }

  /** The process is gone, with its runs and loads. */
  lost(): void {
    for (const order of this.#orders) if (!order.isLaneFree) order.abandoned = true;
  }

  has(functionIndex: number, gpu: number): boolean {
    for (const order of this.#orders) {
      if (order.functionIndex === functionIndex && order.gpu === gpu && !order.abandoned) return true;
    }
    return false;
  }

  get size(): number {
    return this.#orders.size;
  }

  /** Functions that have some. */
  functionIndices(): ReadonlySet<number> {
    return new Set([...this.#orders].map(({ functionIndex }) => functionIndex));
  }

  /** Resolves when everything ordered for this function has ended. */
  async over(functionIndex: number): Promise<void> {
    const orders = [...this.#orders].filter((order) => order.functionIndex === functionIndex);
    await Promise.all(orders.map((order) => new Promise<void>((resolve) => order.over.push(resolve))));
  }
}
