/** What is given back once, however often that is asked for. */
export abstract class Owned {
  #isReleased = false;

  get released(): boolean {
    return this.#isReleased;
  }

  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.giveBack();
  }

  protected abstract giveBack(): void;

  [Symbol.dispose](): void {
    this.release();
  }
}
