/**
 * What the vendor's data sheets say of a few GPUs, by the name that the driver gives them: dense, without sparsity. A
 * device that is not here, or is a slice of one, or another variant of it, has no such figure: nothing is guessed. Pure.
 *
 * Sources, all NVIDIA's: A100 Tensor Core GPU data sheet (2022); H100 Tensor Core GPU data sheet (2024); H200 Tensor Core
 * GPU data sheet (2024); L4 Tensor Core GPU data sheet (2023); T4 Tensor Core GPU data sheet (2019); Ada GPU Architecture
 * white paper, appendix A (RTX 4090, tensor cores that sum in FP32). Where a sheet gives figures with sparsity alone,
 * these are halved, as its footnote has it.
 *
 * @import {HelloFacts} from "./types.js"
 *
 * @typedef {{half: number, single: number, bytesPerS: number, bfloat16?: boolean}} Sheet FLOP per second in 16 and in 32 bits
 */

const A100 = { half: 312e12, single: 19.5e12 };

/** @type {Map<string, Sheet>} */
const SHEETS = new Map([
  ["NVIDIA A100-SXM4-40GB", { ...A100, bytesPerS: 1.555e12 }],
  ["NVIDIA A100-SXM4-80GB", { ...A100, bytesPerS: 2.039e12 }],
  ["NVIDIA A100-PCIE-40GB", { ...A100, bytesPerS: 1.555e12 }],
  ["NVIDIA A100 80GB PCIe", { ...A100, bytesPerS: 1.935e12 }],
  ["NVIDIA H100 80GB HBM3", { half: 989e12, single: 67e12, bytesPerS: 3.35e12 }],
  ["NVIDIA H100 PCIe", { half: 756e12, single: 51e12, bytesPerS: 2e12 }],
  ["NVIDIA H200", { half: 989e12, single: 67e12, bytesPerS: 4.8e12 }],
  ["NVIDIA L4", { half: 121e12, single: 30.3e12, bytesPerS: 300e9 }],
  ["Tesla T4", { half: 65e12, single: 8.1e12, bytesPerS: 320e9, bfloat16: false }],
  ["NVIDIA GeForce RTX 4090", { half: 165.2e12, single: 82.6e12, bytesPerS: 1.008e12 }],
]);

/**
 * The roofs that the vendor gives this device, in the dtype of the weights, as the measured ones are.
 * @param {{device: Pick<HelloFacts["device"], "type" | "name">, model: Pick<HelloFacts["model"], "dtype">} | null} hello
 * @returns {{flops: number, bytesPerS: number} | null}
 */
export function sheetOf(hello) {
  const sheet = hello?.device.type === "cuda" ? SHEETS.get(hello.device.name) : undefined;
  if (!sheet || !hello) return null;
  const { dtype } = hello.model;
  const half = dtype === "float16" || (dtype === "bfloat16" && sheet.bfloat16 !== false);
  const flops = half ? sheet.half : dtype === "float32" ? sheet.single : null;
  return flops === null ? null : { flops, bytesPerS: sheet.bytesPerS };
}
