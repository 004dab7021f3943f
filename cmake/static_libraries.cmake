# AUTOMAP_STATIC_LIBRARIES: FindHDF5 does not say what its static libraries need, and links them in the wrong order.
set(hdf5_needs ZLIB::ZLIB m ${CMAKE_DL_LIBS})
# Szip, where HDF5 has it: Debian's is libaec's.
foreach(library aec sz)
  find_library(AUTOMAP_STATIC_${library} lib${library}.a)
  if(AUTOMAP_STATIC_${library})
    list(PREPEND hdf5_needs ${AUTOMAP_STATIC_${library}})
  endif()
endforeach()
# What Debian's libhdf5.a has of curl and crypto reads files of the cloud. Nothing here refers to that, so it stays behind.
target_link_libraries(hdf5::hdf5 INTERFACE ${hdf5_needs})
target_link_libraries(hdf5::hdf5_hl INTERFACE hdf5::hdf5)
target_link_options(automap_flags INTERFACE -static-libstdc++ -static-libgcc)
