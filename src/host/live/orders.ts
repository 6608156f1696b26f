/** One run or load that was ordered of the GPU process; what comes of an abandoned one is ignored. */
export interface Order {
  readonly functionIndex: number;
  readonly gpu: number;
  readonly abort: AbortController;
  /** Told when it has ended. */
  readonly over: (() => void)[];
  abandoned: boolean;
}

/** Runs and loads that are in flight. */
export class Orders {
  readonly #orders = new Set<Order>();

  open(functionIndex: number, gpu: number): Order {
    const order: Order = { functionIndex, gpu, abort: new AbortController(), over: [], abandoned: false };
    this.#orders.add(order);
    return order;
  }

  close(order: Order): void {
    this.#orders.delete(order);
    for (const tell of order.over) tell();
  }

  abandon(functionIndex: number, gpu: number): void {
    for (const order of this.#orders) {
      if (order.functionIndex !== functionIndex || order.gpu !== gpu) continue;
      order.abandoned = true;
      order.abort.abort();
    }
  }

  /** The process that had them is gone. */
  lost(): void {
    for (const order of this.#orders) order.abandoned = true;
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
