#!/usr/bin/python3
"""Draws lines of text as a picture, as a photo of a page might show them: draw.py OUT.ppm LINE..."""
import pathlib
import random
import sys

from PIL import Image, ImageDraw, ImageFilter, ImageFont

FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"


def main():
    out, *lines = sys.argv[1:]
    if not lines:
        sys.exit(__doc__)
    font = ImageFont.truetype(FONT, 34) if pathlib.Path(FONT).exists() else ImageFont.load_default()
    image = Image.new("RGB", (640, 40 + 64 * len(lines)), (236, 233, 224))
    draw = ImageDraw.Draw(image)
    for i, line in enumerate(lines):
        # Wide gaps between words: narrower ones the recogniser, which knows Chinese pages best, does not read as spaces.
        draw.text((28, 26 + 64 * i), line.replace(" ", "  "), font=font, fill=(38, 40, 46))
    # A little blur and grain: the edges of a lens, not of a renderer.
    image = image.filter(ImageFilter.GaussianBlur(0.7))
    grain = random.Random(1)
    pixels = image.load()
    for y in range(image.height):
        for x in range(image.width):
            by = grain.randint(-6, 6)
            pixels[x, y] = tuple(max(0, min(255, c + by)) for c in pixels[x, y])
    image.save(out)


if __name__ == "__main__":
    main()
