/** Acts at the first call, and does nothing at later ones: what gives something back may be called again. */
export function once(act: () => void): () => void {
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    act();
  };
}
