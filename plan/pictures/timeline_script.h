// The script element that makes a timeline in a page zoom. It finds the pictures and their data by itself.
#pragma once

#include <string>

#include "plan/pictures/timeline_picture.h"

namespace automap::pictures {

std::string timeline_script();

// The data of one, as the script element that it reads. Times are whole numbers of a hundred thousandth of the step.
std::string timeline_data(const TimelinePicture& picture);

}  // namespace automap::pictures
