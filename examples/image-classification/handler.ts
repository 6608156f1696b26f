/** POST a JPEG and get `{"label": "red", "probability": 0.99}`. */
import type { HandlerCall, HandlerTensor } from 'turntable';
import { cropCentre, decodePicture, resizeShorter } from './picture.ts';

// As torchvision's transforms for its classifiers: Resize(256), CenterCrop(224), ToTensor(), Normalize(mean, deviation).
const resized = 256;
const size = 224;
const mean = [0.485, 0.456, 0.406];
const deviation = [0.229, 0.224, 0.225];
const labels = ['red', 'green', 'blue', 'grey'];

export function preprocess({ body }: HandlerCall): HandlerTensor[] {
  const { data: pixels } = cropCentre(resizeShorter(decodePicture(body), resized), size);
  const data = new Float32Array(3 * size * size);
  for (let at = 0; at < size * size; at++) {
    for (let channel = 0; channel < 3; channel++) {
      const value = pixels[4 * at + channel]! / 255;
      data[channel * size * size + at] = (value - mean[channel]!) / deviation[channel]!;
    }
  }
  return [{ name: 'pixels', datatype: 'FP32', shape: [1, 3, size, size], data }];
}

/** The model gives logits, as torchvision's do. */
export function postprocess(tensors: readonly HandlerTensor[]): { label: string; probability: number } {
  const logits = tensors[0]?.data as Float32Array;
  const most = Math.max(...logits);
  const best = logits.indexOf(most);
  const probability = 1 / logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0);
  return { label: labels[best] ?? `class ${best}`, probability: Math.round(probability * 1000) / 1000 };
}
