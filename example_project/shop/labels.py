"""Draws the label for a shelf: name, maker, price and a bar code that a scanner reads. A6 at 300 dots per inch."""

from __future__ import annotations

import io
import textwrap
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from example_project.shop import ean13

WIDTH, HEIGHT = 1748, 1240
MARGIN = 100
BAR_WIDTH = 12
BARS_TOP, BARS_HEIGHT = 780, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    name: str
    maker: str
    price: str
    number: str


def draw(label: Label) -> bytes:
    """Return the label as PNG."""
    image = Image.new("L", (WIDTH, HEIGHT), 255)
    canvas = ImageDraw.Draw(image)
    _draw_texts(canvas, label)
    _draw_bars(canvas, label.number)
    file = io.BytesIO()
    image.save(file, "PNG", dpi=(300, 300))
    return file.getvalue()


def _draw_texts(canvas: ImageDraw.ImageDraw, label: Label) -> None:
    canvas.rectangle((30, 30, WIDTH - 30, HEIGHT - 30), outline=0, width=6)
    name = textwrap.fill(label.name, 30, max_lines=3, placeholder=" ...")
    canvas.multiline_text((MARGIN, 80), name, fill=0, font=ImageFont.load_default(96))
    maker = textwrap.shorten(label.maker, 60, placeholder=" ...")
    canvas.text((MARGIN, 500), maker, fill=0, font=ImageFont.load_default(56))
    canvas.text((MARGIN, 610), label.price, fill=0, font=ImageFont.load_default(120))


def _draw_bars(canvas: ImageDraw.ImageDraw, number: str) -> None:
    left = (WIDTH - ean13.MODULES * BAR_WIDTH) // 2
    for place, module in enumerate(ean13.bars(number)):
        if module == "1":
            x = left + place * BAR_WIDTH
            canvas.rectangle((x, BARS_TOP, x + BAR_WIDTH - 1, BARS_TOP + BARS_HEIGHT), fill=0)
    font = ImageFont.load_default(64)
    canvas.text((WIDTH // 2, BARS_TOP + BARS_HEIGHT + 20), number, fill=0, font=font, anchor="ma")
