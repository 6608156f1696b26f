/** A resource that is freed once: releasing it again does nothing. */
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
