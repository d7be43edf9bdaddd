"""Arithmetic, traffic and kernels of services, counted layer by layer: the `computed` figures of data/models.

    python benchmarks/fit/work.py            a line per network

A multiply-add is two FLOP. Traffic is what every layer reads and writes besides its weights, as if there were no
cache. Batch norm and ReLU are fused into convolutions; norms and activations of transformers count as separate
kernels. Dimensions are those of the published configurations: ResNet-50 and ResNeXt-50 32x4d (torchvision), RetinaNet
with 264 classes (MLPerf), 3D U-Net of KiTS19 (nnU-Net), BERT, DLRM and DLRM-DCNv2 (Criteo), Stable Diffusion (U-Net,
decoder).
"""

from collections.abc import Sequence
from itertools import pairwise


class Count:
    """Counts of multiply-adds (all, and in self-attention), numbers moved, kernels, weights, and the widest layer."""

    def __init__(self) -> None:
        self.macs = self.attention_macs = self.moved = self.kernels = self.weights = self.widest = 0

    def conv(
        self, inputs: int, outputs: int, taps: int, pixels: int, pixels_in: int = 0, groups: int = 1, times: int = 1
    ) -> None:
        """Add *times* convolutions of *taps* taps with *pixels* output pixels.

        *pixels_in* is the number of input pixels, if different.
        """
        weights = taps * inputs * outputs // groups
        self.macs += times * weights * pixels
        self.weights += times * weights
        own = inputs * (pixels_in or pixels) + outputs * pixels
        self.moved += times * own
        self.widest = max(self.widest, own)
        self.kernels += times

    def linear(self, inputs: int, outputs: int, tokens: int, times: int = 1) -> None:
        """Add matrix products: convolutions of one tap."""
        self.conv(inputs, outputs, 1, tokens, times=times)

    def attend(self, queries: int, keys: int, width: int) -> None:
        """Add scores and values of *queries* tokens over *keys* tokens; equal numbers mean self-attention."""
        macs = 2 * queries * keys * width
        self.macs += macs
        self.attention_macs += macs if queries == keys else 0
        self.moved += 2 * (queries + keys) * width
        self.widest = max(self.widest, 2 * (queries + keys) * width)
        self.kernels += 1

    def pointwise(self, numbers: int, kernels: int) -> None:
        """Add norms and activations that read and write *numbers* in total."""
        self.moved += numbers
        self.kernels += kernels

    @property
    def flops(self) -> int:
        """FLOP of one pass."""
        return 2 * self.macs


def residual(count: Count, inputs: int, outputs: int, pixels: int) -> None:
    """Add a residual block of a U-Net or its decoder: two convolutions with group norms."""
    count.conv(inputs, outputs, 9, pixels)
    count.conv(outputs, outputs, 9, pixels)
    count.pointwise(2 * (inputs + outputs) * pixels, 2)
    if inputs != outputs:
        count.conv(inputs, outputs, 1, pixels)


def transformer(count: Count, width: int, pixels: int, blocks: int, context_width: int) -> None:
    """Add *blocks* of self-attention, cross-attention over 77 text tokens and a gated feed-forward network."""
    count.linear(width, width, pixels, times=2)
    for _ in range(blocks):
        count.linear(width, width, pixels, times=6)
        count.attend(pixels, pixels, width)
        count.linear(context_width, width, 77, times=2)
        count.attend(pixels, 77, width)
        count.linear(width, 8 * width, pixels)
        count.linear(4 * width, width, pixels)
        count.pointwise(6 * width * pixels, 3)


def denoiser(
    widths: Sequence[int], blocks: Sequence[int], middle: int, latent: int, context_width: int, first: int = 320
) -> Count:
    """Return a U-Net call: per level two residual blocks down and three up, each with *blocks* transformer blocks."""
    count, pixels, width = Count(), latent * latent, first
    count.conv(4, first, 9, pixels)
    skips = [first]
    for level, (outputs, depth) in enumerate(zip(widths, blocks, strict=True)):
        for _ in range(2):
            residual(count, width, outputs, pixels)
            count.linear(4 * first, outputs, 1)
            width = outputs
            if depth:
                transformer(count, width, pixels, depth, context_width)
            skips.append(width)
        if level < len(widths) - 1:
            count.conv(width, width, 9, pixels // 4, pixels)
            pixels //= 4
            skips.append(width)
    for last in (False, True):
        residual(count, width, width, pixels)
        count.linear(4 * first, width, 1)
        if not last:
            transformer(count, width, pixels, middle, context_width)
    for level in reversed(range(len(widths))):
        for _ in range(3):
            residual(count, width + skips.pop(), widths[level], pixels)
            count.linear(4 * first, widths[level], 1)
            width = widths[level]
            if blocks[level]:
                transformer(count, width, pixels, blocks[level], context_width)
        if level:
            pixels *= 4
            count.conv(width, width, 9, pixels, pixels // 4)
    count.conv(first, 4, 9, latent * latent)
    return count


def decoder(latent: int) -> Count:
    """Return the decoding of latents to an image with eight times their side."""
    count, pixels, width = Count(), latent * latent, 512
    count.conv(4, width, 9, pixels)
    residual(count, width, width, pixels)
    count.linear(width, width, pixels, times=4)
    count.attend(pixels, pixels, width)
    residual(count, width, width, pixels)
    for level, outputs in enumerate((512, 512, 256, 128)):
        for _ in range(3):
            residual(count, width, outputs, pixels)
            width = outputs
        if level < 3:
            pixels *= 4
            count.conv(width, width, 9, pixels, pixels // 4)
    count.conv(width, 3, 9, pixels)
    return count


def resnet(side: int, groups: int = 1, widening: int = 1) -> Count:
    """Return the four stages of ResNet-50 or ResNeXt-50 without the classifier."""
    count, pixels, inputs = Count(), (side // 4) ** 2, 64
    count.conv(3, 64, 49, 4 * pixels, side * side)
    count.pointwise(64 * 5 * pixels, 1)
    for stage, (blocks, middle, outputs) in enumerate(((3, 64, 256), (4, 128, 512), (6, 256, 1024), (3, 512, 2048))):
        middle *= widening
        for block in range(blocks):
            out = pixels // 4 if stage and not block else pixels
            count.conv(inputs, middle, 1, pixels)
            count.conv(middle, middle, 9, out, pixels, groups)
            count.conv(middle, outputs, 1, out)
            count.moved += outputs * out
            if not block:
                count.conv(inputs, outputs, 1, out, pixels)
            pixels, inputs = out, outputs
    return count


def resnet_50() -> Count:
    """Return ResNet-50 on 224 x 224 pixels."""
    count = resnet(224)
    count.linear(2048, 1000, 1)
    return count


def retinanet() -> Count:
    """Return RetinaNet on 800 x 800 pixels, with nine anchors and 264 classes at five levels.

    The weights of its heads count at each level.
    """
    count = resnet(800, groups=32, widening=2)
    for width, pixels in ((512, 10000), (1024, 2500), (2048, 625)):
        count.conv(width, 256, 1, pixels)
        count.conv(256, 256, 9, pixels)
    count.conv(256, 256, 9, 169, 625)
    count.conv(256, 256, 9, 49, 169)
    for pixels in (10000, 2500, 625, 169, 49):
        count.conv(256, 256, 9, pixels, times=8)
        count.conv(256, 9 * 264, 9, pixels)
        count.conv(256, 9 * 4, 9, pixels)
    return count


def unet_3d() -> Count:
    """Return one window of 128 x 128 x 128 voxels."""
    count, voxels, widths = Count(), 128**3, (32, 64, 128, 256, 320, 320)
    count.conv(1, 32, 27, voxels)
    count.conv(32, 32, 27, voxels)
    for inputs, outputs in pairwise(widths):
        count.conv(inputs, outputs, 27, voxels // 8, voxels)
        voxels //= 8
        count.conv(outputs, outputs, 27, voxels)
    for inputs, outputs in pairwise(widths[::-1]):
        voxels *= 8
        count.conv(inputs, outputs, 1, voxels, voxels // 8)
        count.weights += 7 * inputs * outputs
        count.conv(2 * outputs, outputs, 27, voxels)
        count.conv(outputs, outputs, 27, voxels)
    count.conv(32, 3, 1, voxels)
    return count


def bert(layers: int, width: int, tokens: int) -> Count:
    """Return an encoder without its embedding."""
    count = Count()
    for _ in range(layers):
        count.linear(width, 3 * width, tokens)
        count.attend(tokens, tokens, width)
        count.linear(width, width, tokens)
        count.linear(width, 4 * width, tokens)
        count.linear(4 * width, width, tokens)
        count.pointwise(6 * width * tokens, 3)
    return count


def dlrm(cross: bool) -> Count:
    """Return one user-item pair; with *cross*, DCNv2's three layers of rank 512 instead of dot products."""
    count = Count()
    top = 3456 if cross else 479
    for inputs, outputs in ((13, 512), (512, 256), (256, 128), (top, 1024), (1024, 1024), (1024, 512), (512, 256)):
        count.linear(inputs, outputs, 1)
    count.linear(256, 1, 1)
    lookups = 214 if cross else 26
    count.pointwise(128 * (lookups + 26), 3)
    if cross:
        for _ in range(3):
            count.linear(3456, 512, 1)
            count.linear(512, 3456, 1)
            count.moved += 3 * 3456
    else:
        count.macs += 27 * 27 * 128
    return count


def rnn_t() -> Count:
    """Return the encoder of an utterance of 7.4 s: frames of 30 ms, halved after two LSTM layers."""
    count, frames = Count(), int(7.4 / 0.03)
    for inputs, steps in ((240, frames), (1024, frames), (2048, frames // 2), (1024, frames // 2), (1024, frames // 2)):
        count.linear(inputs + 1024, 4096, 1, times=steps)
    return count


NETWORKS = {
    "resnet-50": resnet_50,
    "retinanet": retinanet,
    "3d-unet": unet_3d,
    "bert-base": lambda: bert(12, 768, 128),
    "bert-base-384": lambda: bert(12, 768, 384),
    "bert-large": lambda: bert(24, 1024, 384),
    "dlrm": lambda: dlrm(cross=False),
    "dlrm-dcnv2": lambda: dlrm(cross=True),
    "rnn-t": rnn_t,
    "sd-1.5": lambda: denoiser((320, 640, 1280, 1280), (1, 1, 1, 0), 1, 64, 768),
    "sd-2.1": lambda: denoiser((320, 640, 1280, 1280), (1, 1, 1, 0), 1, 64, 1024),
    "sdxl-base": lambda: denoiser((320, 640, 1280), (0, 2, 10), 10, 128, 2048),
}
"""Function that counts one pass (one denoiser call), keyed by model id."""
DECODERS = {"sd-1.5": 64, "sd-2.1": 64, "sdxl-base": 128}
"""Side of the latents of an image, keyed by model id."""


def main() -> None:
    """Print every network."""
    for name, counted in NETWORKS.items():
        _show(name, counted())
    for name, latent in DECODERS.items():
        _show(f"{name}, decoder", decoder(latent))


def _show(name: str, count: Count) -> None:
    attention = f"{count.flops:.4g} FLOP, {2 * count.attention_macs:.4g} of it self-attention"
    print(
        f"{name}: {attention}, {count.moved:.3g} moved, {count.kernels} kernels, {count.weights:.4g} weights, "
        f"{count.widest:.4g} in the widest layer"
    )


if __name__ == "__main__":
    main()
