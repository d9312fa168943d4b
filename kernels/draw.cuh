// draw.cuh -- columns of a row of draws; gpubeton/_plan/draw_rows.py in Python.
#pragma once

enum Draw { TOP, LEFT, HEIGHT, WIDTH, FLIP, SHIFT_Y, SHIFT_X, RESIZED_HEIGHT, RESIZED_WIDTH, NUM_PAINTS, DRAW_COLUMNS };

// Then the paints: each a rectangle and the row of its color in the fills.
enum Paint { PAINT_TOP, PAINT_LEFT, PAINT_BOTTOM, PAINT_RIGHT, PAINT_FILL, PAINT_COLUMNS };
